# Installs the library, its public headers (a private one says so in its second line), a CMake package and a pkg-config
# file.
include(CMakePackageConfigHelpers)

install(TARGETS burin EXPORT burinTargets)
install(EXPORT burinTargets NAMESPACE burin:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/burin)

file(GLOB_RECURSE headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS runtime/*.h ops/*.h nn/*.h graph/*.h io/*.h)
foreach(header burin.h ${headers})
  file(STRINGS ${header} private LIMIT_COUNT 1 REGEX "^// Private")
  if(NOT private)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/burin/${folder})
  endif()
endforeach()

# A static Burin leaves these to the program that links it; a shared one has them inside.
set(BURIN_PC_REQUIRES "")
set(BURIN_PC_LIBS "")
get_target_property(type burin TYPE)
if(type STREQUAL "STATIC_LIBRARY")
  set(BURIN_PC_REQUIRES "libpng, libjpeg, zlib")
  set(BURIN_PC_LIBS "-lstdc++ -lm -pthread")
  if(BURIN_WITH_CUDA)
    string(APPEND BURIN_PC_LIBS " ${CUDA_cudart_static_LIBRARY} -ldl -lrt")
  endif()
endif()

# The prefix is wherever the file lies: cmake --install may be given another than configuration was.
file(RELATIVE_PATH BURIN_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_package_config_file(cmake/burinConfig.cmake.in burinConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/burin)
write_basic_package_version_file(burinConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/burin.pc.in burin.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/burinConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/burinConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/burin)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/burin.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

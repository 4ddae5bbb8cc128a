# Warnings, sanitizers and the instruction set of one target; C++ flags do not reach nvcc's own passes.
function(burin_compile_options target)
  set(warnings -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND warnings -Wno-array-bounds -Wno-stringop-overflow)  # false alarms from within fmt
  endif()
  if(BURIN_WERROR)
    list(APPEND warnings -Werror)
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>)
  if(BURIN_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()

  # As an option: CMake 3.25 knows no C++20 for nvcc.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)

  # Nobody reads errno or the exception flags of floating-point maths; without them selects and square roots vectorise.
  # Results do not change.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>)

  set(arch ${BURIN_CPU_ARCH})
  if(NOT arch AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(arch x86-64-v3)
  endif()
  if(arch)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=${arch}>)
  endif()

  if(BURIN_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${BURIN_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
    target_link_options(${target} PRIVATE -fsanitize=${BURIN_SANITIZE})
  endif()
endfunction()

# Adds sources, given relative to the calling folder, to the library; .cu files only where CUDA is built.
function(burin_sources)
  foreach(source ${ARGN})
    if(BURIN_WITH_CUDA OR NOT source MATCHES "\\.cu$")
      target_sources(burin PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    endif()
  endforeach()
endfunction()

# One operator: burin_operator(conv2d cpu cuda cudnn) adds conv2d/conv2d.cpp and one file for each backend named.
function(burin_operator name)
  burin_sources(${name}/${name}.cpp)
  foreach(backend ${ARGN})
    if(backend STREQUAL "cuda")
      burin_sources(${name}/${name}_cuda.cu)
    elseif(backend STREQUAL "cpu" OR BURIN_WITH_CUDA)
      burin_sources(${name}/${name}_${backend}.cpp)
    endif()
  endforeach()
endfunction()

# Installs Burin into a folder of its own, then builds and runs examples/embed against it in three ways: by find_package,
# by pkg-config, and from source by add_subdirectory. Needs -DBUILD=, -DSOURCE=, -DWORK=, -DCXX=.
foreach(variable BUILD SOURCE WORK CXX)
  if(NOT DEFINED ${variable})
    message(FATAL_ERROR "-D${variable}= is missing")
  endif()
endforeach()

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(check_program program)
  run(${program} ${SOURCE}/examples/cnn/sample_cnn.safetensors ${SOURCE}/tests/data/sample_cnn_input.npy)
  if(NOT output STREQUAL "8 1 4 4 1 7 3 0 0 0 \n")
    message(FATAL_ERROR "${program} printed: ${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)

run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/embed -B ${WORK}/package -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/package)
check_program(${WORK}/package/embed)

file(GLOB pc ${WORK}/prefix/lib*/pkgconfig ${WORK}/prefix/lib*/*/pkgconfig)
set(ENV{PKG_CONFIG_PATH} ${pc})
run(pkg-config --cflags --libs burin)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${CXX} -std=c++20 ${SOURCE}/examples/embed/main.cpp -o ${WORK}/by_pkg_config ${flags} -Wl,-rpath,${pc}/..)
check_program(${WORK}/by_pkg_config)

run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/embed -B ${WORK}/subdirectory -DCMAKE_CXX_COMPILER=${CXX}
  -DBURIN_SOURCE_DIR=${SOURCE} -DBURIN_CUDA=OFF)
run(${CMAKE_COMMAND} --build ${WORK}/subdirectory)
check_program(${WORK}/subdirectory/embed)

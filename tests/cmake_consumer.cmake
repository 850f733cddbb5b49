# Installs the library into an empty prefix and builds examples/cpp against it alone, as a C++ user does.
#   cmake -DBUILD=<build folder> -DSOURCE=<root> -DCXX=<compiler> -P tests/cmake_consumer.cmake
set(scratch ${BUILD}/cmake_consumer)
file(REMOVE_RECURSE ${scratch})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --component cpp --prefix ${scratch}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/cpp -B ${scratch}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${scratch}/prefix -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${scratch}/build)
run(${scratch}/build/example_quickstart)

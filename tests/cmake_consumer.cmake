# Installs the library into an empty prefix and builds examples/cpp against it alone, as a C++ user does;
# one of them by pkg-config, too. The command's manual page and completion come along.
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

find_program(pkg_config pkg-config REQUIRED)
file(GLOB pc_file ${scratch}/prefix/lib*/pkgconfig/headrace.pc ${scratch}/prefix/lib/*/pkgconfig/headrace.pc)
get_filename_component(pc_folder ${pc_file} DIRECTORY)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --cflags --libs headrace
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX} -std=c++20 ${SOURCE}/examples/cpp/quickstart.cpp -o ${scratch}/by_pkg_config ${flags})
run(${scratch}/by_pkg_config)

foreach(page man/man1/headrace.1 bash-completion/completions/headrace zsh/site-functions/_headrace
    fish/vendor_completions.d/headrace.fish)
  file(SIZE ${scratch}/prefix/share/${page} nbytes)
  if(nbytes EQUAL 0)
    message(FATAL_ERROR "share/${page} is empty")
  endif()
endforeach()

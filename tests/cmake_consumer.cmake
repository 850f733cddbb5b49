# Installs the library into an empty prefix and builds programs against it alone, as a C++ user does: examples/cpp, and
# tests/consumer against each kind of library by CMake and by pkg-config. The command's manual page and completion
# come along.
#   cmake -DBUILD=<build folder> -DSOURCE=<root> -DCXX=<compiler> -DSHARED=<ON|OFF> -P tests/cmake_consumer.cmake
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
find_program(readelf readelf REQUIRED)
file(GLOB pc_file ${scratch}/prefix/lib*/pkgconfig/headrace.pc ${scratch}/prefix/lib/*/pkgconfig/headrace.pc)
get_filename_component(pc_folder ${pc_file} DIRECTORY)
get_filename_component(lib_folder ${pc_folder} DIRECTORY)

# Runs, and needs libheadrace.so at run time or not.
function(try_program program kind)
  run(${program})
  execute_process(COMMAND ${readelf} -d ${program}
    OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "NEEDED[^\n]*libheadrace[^]\n]*" needed "${dynamic}")
  if(kind STREQUAL "shared" AND NOT needed MATCHES "\\[libheadrace\\.so\\.[0-9.]+$")
    message(FATAL_ERROR "${program} was not linked with the shared library: ${needed}")
  elseif(kind STREQUAL "static" AND needed)
    message(FATAL_ERROR "${program} was not linked with the static library: ${needed}")
  endif()
endfunction()

function(consume kind library package)
  # The shared library asks for no package of what it is made of.
  set(without "")
  set(search PKG_CONFIG_PATH=${pc_folder})
  if(kind STREQUAL "shared")
    foreach(private PkgConfig Threads fmt BZip2 CURL OpenSSL CUDAToolkit)
      list(APPEND without -DCMAKE_DISABLE_FIND_PACKAGE_${private}=ON)
    endforeach()
    set(search PKG_CONFIG_LIBDIR=${pc_folder})
  endif()
  set(folder ${scratch}/${kind})
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${folder} -G Ninja --no-warn-unused-cli
    -DCMAKE_PREFIX_PATH=${scratch}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DKIND=${kind} -DLIBRARY=${library} ${without})
  run(${CMAKE_COMMAND} --build ${folder})
  try_program(${folder}/consumer ${kind})

  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${search} ${pkg_config} --cflags --libs ${package}
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${CXX} -std=c++20 ${SOURCE}/tests/consumer/main.cpp -o ${folder}/by_pkg_config ${flags} -Wl,-rpath,${lib_folder})
  try_program(${folder}/by_pkg_config ${kind})
endfunction()

if(SHARED)
  consume(shared headrace::headrace headrace)
  consume(static headrace::headrace_static headrace-static)
else()
  consume(static headrace::headrace headrace)
endif()

foreach(page man/man1/headrace.1 bash-completion/completions/headrace zsh/site-functions/_headrace
    fish/vendor_completions.d/headrace.fish)
  file(SIZE ${scratch}/prefix/share/${page} nbytes)
  if(nbytes EQUAL 0)
    message(FATAL_ERROR "share/${page} is empty")
  endif()
endforeach()

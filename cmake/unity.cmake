# With HEADRACE_UNITY a folder is one source for the compiler, which reads headers and instantiates
# templates once for it: the library in two thirds of the time, the command in less than half. A
# folder, not a number of files, so that a new file meets only its neighbours.
#
# What is in unnamed namespaces of a folder is then in one namespace: "redefinition of" or "reference
# to ... is ambiguous" in a file that compiles in build/dev means that a neighbour has that name too;
# "defined but not used", that a neighbour's overload is called in its place. Give the new one a
# better name, or add its file to the list of those that compile alone, where the function is called.
function(headrace_unity target root)
  if(NOT HEADRACE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH name ${root} ${source})
    cmake_path(REMOVE_EXTENSION name)
    if(name IN_LIST ARGN)
      set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    else()
      cmake_path(GET name PARENT_PATH folder)
      if(folder STREQUAL "")
        set(folder ${target})
      endif()
      string(MAKE_C_IDENTIFIER ${folder} folder)
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder})
    endif()
  endforeach()
  # Names of neighbours may hide each other and be types of members: what -Wshadow and
  # -Wsubobject-linkage say, they say in the ordinary build.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP
    UNITY_BUILD_CODE_BEFORE_INCLUDE "#pragma GCC diagnostic ignored \"-Wshadow\"")
  target_compile_options(${target} PRIVATE
    -Werror=unused-function $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

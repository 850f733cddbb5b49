# Compiles for C libraries from glibc 2.28 on, whatever this machine has, with its own compiler: the
# headers and libraries are those of build/wheel-root (tools/wheel_root), where nearly all but the C
# library is an archive, and what GCC's C++ library wants of a newer one is in this folder.
cmake_path(SET CMAKE_SYSROOT NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../../build/wheel-root)
set(libraries ${CMAKE_SYSROOT}/usr/lib/x86_64-linux-gnu)
if(NOT EXISTS ${libraries}/libmissing.a)
  message(FATAL_ERROR "there is no ${CMAKE_SYSROOT}: tools/wheel_root makes it, and make wheel all of a wheel")
endif()
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CXX_FLAGS_INIT "-include ${CMAKE_CURRENT_LIST_DIR}/before.h")
# CMake tells neither nvcc nor a linker of its objects of a root.
set(CMAKE_CUDA_FLAGS_INIT "-Xcompiler=--sysroot=${CMAKE_SYSROOT} -include ${CMAKE_CURRENT_LIST_DIR}/before.h")
# Before the folders that GCC finds from its own.
set(folders "--sysroot=${CMAKE_SYSROOT} -L${libraries} -L${CMAKE_SYSROOT}/lib/x86_64-linux-gnu")
foreach(kind EXE MODULE SHARED)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${folders} -static-libstdc++")
endforeach()
set(CMAKE_C_STANDARD_LIBRARIES "-lpthread -ldl -lrt -lm")
set(CMAKE_CXX_STANDARD_LIBRARIES "-lmissing ${CMAKE_C_STANDARD_LIBRARIES}")

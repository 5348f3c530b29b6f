# What `cmake --install` puts where. The programs are in libexec/lorikeet and carry no path to libtorch; bin/ holds
# their launchers (launcher.sh.in), which find it at run time, so that the tree may be moved.
include(GNUInstallDirs)
set(LORIKEET_INSTALL_LIBEXEC "${CMAKE_INSTALL_LIBEXECDIR}/lorikeet")
set(LORIKEET_INSTALL_SHARE "${CMAKE_INSTALL_DATADIR}/lorikeet")

set(LORIKEET_LAUNCHER "${CMAKE_BINARY_DIR}/launcher.sh")
configure_file("${CMAKE_SOURCE_DIR}/cmake/launcher.sh.in" "${LORIKEET_LAUNCHER}" @ONLY)

if(LORIKEET_TORCH)
  # The libtorch of the build, the launcher's last resort on the machine where it was installed.
  file(WRITE "${CMAKE_BINARY_DIR}/libtorch-folder" "${LIBTORCH_ROOT}\n")
  install(FILES "${CMAKE_BINARY_DIR}/libtorch-folder" DESTINATION ${LORIKEET_INSTALL_LIBEXEC})
endif()
install(DIRECTORY recipes/configs DESTINATION ${LORIKEET_INSTALL_SHARE}/recipes OPTIONAL)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)

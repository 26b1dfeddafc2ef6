# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts in place: headers, the CMake package with its finders, the licence.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(toller_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/toller)   # share/: headers only, the same on every architecture

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/toller DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT toller FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(TARGETS toller EXPORT tollerTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tollerTargets NAMESPACE toller:: DESTINATION ${toller_package_dir} COMPONENT toller)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tollerConfig.cmake.in ${PROJECT_BINARY_DIR}/tollerConfig.cmake
                              INSTALL_DESTINATION ${toller_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tollerConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/tollerConfig.cmake ${PROJECT_BINARY_DIR}/tollerConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/FindUtf8proc.cmake
        DESTINATION ${toller_package_dir} COMPONENT toller)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/toller COMPONENT toller)

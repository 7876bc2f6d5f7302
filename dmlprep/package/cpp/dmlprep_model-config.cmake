# find_package(dmlprep_model): the target dmlprep::model and the function dmlprep_stage, of an installed package; or of the
# package's own folder (dmlprep_model_DIR=app), which becomes a part of the build.
if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/dmlprep_model-targets.cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/dmlprep_model-targets.cmake")
  set(DMLPREP_MODEL_FOLDER "${CMAKE_CURRENT_LIST_DIR}/model")
  file(GLOB DMLPREP_DLLS "${CMAKE_CURRENT_LIST_DIR}/dll/*.dll")
  include("${CMAKE_CURRENT_LIST_DIR}/dmlprep_stage.cmake")
elseif(NOT TARGET dmlprep::model)
  add_subdirectory("${CMAKE_CURRENT_LIST_DIR}" "${CMAKE_BINARY_DIR}/dmlprep_model" EXCLUDE_FROM_ALL)
endif()

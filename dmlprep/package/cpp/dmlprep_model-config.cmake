# find_package(dmlprep_model): the target dmlprep::model and the function dmlprep_stage, from where they were installed.
include("${CMAKE_CURRENT_LIST_DIR}/dmlprep_model-targets.cmake")
set(DMLPREP_MODEL_FOLDER "${CMAKE_CURRENT_LIST_DIR}/model")
file(GLOB DMLPREP_DLLS "${CMAKE_CURRENT_LIST_DIR}/dll/*.dll")
include("${CMAKE_CURRENT_LIST_DIR}/dmlprep_stage.cmake")

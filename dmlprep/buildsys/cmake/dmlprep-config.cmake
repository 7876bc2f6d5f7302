# find_package(dmlprep CONFIG REQUIRED PATHS ...) with the folder that `python -m dmlprep.buildsys cmake` prints.
#
# dmlprep_add_model(<target>
#     MODEL <file.onnx>            the model; its external data files are tracked through a depfile
#     [RECIPE <@name|file.toml>]   @static-fp32 when left out
#     [OUTPUT_DIRECTORY <folder>]  ${CMAKE_CURRENT_BINARY_DIR}/<target> when left out
#     [PINS <dim=size|input:=value>...]
#     [ARGUMENTS <more options of dmlprep prepare>...])
#
# Builds <folder>/model.onnx and <folder>/run.json; the build fails where the model is refused or parity fails.
# The path of the result is the target's property DMLPREP_MODEL.
include_guard(GLOBAL)

set(_dmlprep_hints)
if(DEFINED Python3_EXECUTABLE)
  get_filename_component(_dmlprep_hints "${Python3_EXECUTABLE}" DIRECTORY)
endif()
# This file lies in <environment>/lib/pythonX.Y/site-packages/dmlprep/buildsys/cmake (Lib/site-packages on Windows).
find_program(DMLPREP_EXECUTABLE dmlprep
  HINTS ${_dmlprep_hints}
        "${CMAKE_CURRENT_LIST_DIR}/../../../../../../bin"
        "${CMAKE_CURRENT_LIST_DIR}/../../../../../Scripts"
  DOC "The dmlprep command")
if(NOT DMLPREP_EXECUTABLE)
  set(dmlprep_FOUND FALSE)
  set(dmlprep_NOT_FOUND_MESSAGE "the dmlprep command was not found: pip install dmlprep, or set DMLPREP_EXECUTABLE")
  return()
endif()

function(dmlprep_add_model target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODEL;RECIPE;OUTPUT_DIRECTORY" "PINS;ARGUMENTS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "dmlprep_add_model(${target}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_MODEL)
    message(FATAL_ERROR "dmlprep_add_model(${target}): MODEL is missing")
  endif()
  if(NOT arg_RECIPE)
    set(arg_RECIPE "@static-fp32")
  endif()
  if(NOT arg_OUTPUT_DIRECTORY)
    set(arg_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${target}")
  endif()
  get_filename_component(model "${arg_MODEL}" ABSOLUTE)
  get_filename_component(folder "${arg_OUTPUT_DIRECTORY}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set(depends "${model}")
  if(NOT arg_RECIPE MATCHES "^@")
    get_filename_component(arg_RECIPE "${arg_RECIPE}" ABSOLUTE)
    list(APPEND depends "${arg_RECIPE}")
  endif()
  set(pins)
  foreach(pin IN LISTS arg_PINS)
    list(APPEND pins --pin "${pin}")
  endforeach()
  set(depfile "${CMAKE_CURRENT_BINARY_DIR}/${target}.d")
  add_custom_command(
    OUTPUT "${folder}/model.onnx"
    BYPRODUCTS "${folder}/run.json"
    COMMAND "${DMLPREP_EXECUTABLE}" prepare "${model}" -o "${folder}" --recipe "${arg_RECIPE}" ${pins}
            --force --quiet --depfile "${depfile}" ${arg_ARGUMENTS}
    DEPENDS ${depends}
    DEPFILE "${depfile}"
    COMMENT "Preparing ${arg_MODEL} for DirectML"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${folder}/model.onnx")
  set_target_properties(${target} PROPERTIES DMLPREP_MODEL "${folder}/model.onnx")
endfunction()

# find_package(dmlprep 0.1 CONFIG REQUIRED PATHS ...) with the folder that `python -m dmlprep.cli.buildsys cmake` prints.
#
# dmlprep_add_model(<target>
#     MODEL <file.onnx>            the model; its external data files are tracked through a depfile
#     [RECIPE <@name|file.toml>]   @static-fp32 when left out
#     [OUTPUT_DIRECTORY <folder>]  ${CMAKE_CURRENT_BINARY_DIR}/<target> when left out
#     [PINS <dim=size|input:=value>...]
#     [SETTINGS <recipe field=value>...]
#     [FEEDS <file|folder|name=file>...]
#     [RELEASE <DirectML release>]
#     [EXTERNAL_DATA]              weights in model.onnx.data, whatever their size
#     [ARGUMENTS <more options of dmlprep prepare>...])
#
# Builds <folder>/model.onnx and <folder>/run.json; the build fails where the model is refused or parity fails.
# Properties of the target: DMLPREP_MODEL is the path of the result. DMLPREP_DATA is that of model.onnx.data, which is
# there with EXTERNAL_DATA, else where the weights exceed 1 GiB.
#
# dmlprep_install(<target> DESTINATION <folder> [COMPONENT <name>])
#
# Installs <folder>/<target>/model.onnx, and model.onnx.data beside it where there is one.
include_guard(GLOBAL)

set(_dmlprep_hints)
if(DEFINED Python3_EXECUTABLE)
  get_filename_component(_dmlprep_hints "${Python3_EXECUTABLE}" DIRECTORY)
endif()
# This file lies in <environment>/lib/pythonX.Y/site-packages/dmlprep/cli/buildsys/cmake (Lib/site-packages on Windows).
find_program(DMLPREP_EXECUTABLE dmlprep
  HINTS ${_dmlprep_hints}
        "${CMAKE_CURRENT_LIST_DIR}/../../../../../../../bin"
        "${CMAKE_CURRENT_LIST_DIR}/../../../../../../Scripts"
  DOC "The dmlprep command")
if(NOT DMLPREP_EXECUTABLE)
  set(dmlprep_FOUND FALSE)
  set(dmlprep_NOT_FOUND_MESSAGE "the dmlprep command was not found: pip install dmlprep, or set DMLPREP_EXECUTABLE")
  return()
endif()
# Another version of dmlprep configures the project again, and every model depends on it.
set_property(GLOBAL PROPERTY DMLPREP_VERSION "${dmlprep_VERSION}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../../../core/_version.py")

function(dmlprep_add_model target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXTERNAL_DATA" "MODEL;RECIPE;OUTPUT_DIRECTORY;RELEASE"
    "PINS;SETTINGS;FEEDS;ARGUMENTS")
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
  set(options)
  foreach(pin IN LISTS arg_PINS)
    list(APPEND options --pin "${pin}")
  endforeach()
  foreach(setting IN LISTS arg_SETTINGS)
    list(APPEND options --set "${setting}")
  endforeach()
  foreach(feed IN LISTS arg_FEEDS)
    # A path, or INPUT=PATH.
    string(REGEX MATCH "^([^=/]+=)?(.*)$" feed "${feed}")
    get_filename_component(path "${CMAKE_MATCH_2}" ABSOLUTE)
    list(APPEND options --feeds "${CMAKE_MATCH_1}${path}")
  endforeach()
  if(arg_RELEASE)
    list(APPEND options --target "${arg_RELEASE}")
  endif()
  set(byproducts "${folder}/run.json")
  if(arg_EXTERNAL_DATA)
    list(APPEND options --external-data)
    # A byproduct that may be missing would be made anew in each build.
    list(APPEND byproducts "${folder}/model.onnx.data")
  endif()
  set(depfile "${CMAKE_CURRENT_BINARY_DIR}/${target}.d")
  # What is no file, in one that is written where it changes: Make does not look at commands, and the time of
  # dmlprep's own files does not tell that an older version has come back.
  set(state "${CMAKE_CURRENT_BINARY_DIR}/${target}.dmlprep.txt")
  get_property(version GLOBAL PROPERTY DMLPREP_VERSION)
  file(CONFIGURE OUTPUT "${state}" @ONLY
    CONTENT "dmlprep @version@ @DMLPREP_EXECUTABLE@\nrecipe @arg_RECIPE@\n@options@\n@arg_ARGUMENTS@\n")
  add_custom_command(
    OUTPUT "${folder}/model.onnx"
    BYPRODUCTS ${byproducts}
    COMMAND "${DMLPREP_EXECUTABLE}" prepare "${model}" -o "${folder}" --recipe "${arg_RECIPE}" ${options}
            --no-project --force --quiet --depfile "${depfile}" ${arg_ARGUMENTS}
    DEPENDS ${depends} "${state}"
    DEPFILE "${depfile}"
    COMMENT "Preparing ${arg_MODEL} for DirectML"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${folder}/model.onnx")
  set_target_properties(${target} PROPERTIES
    DMLPREP_MODEL "${folder}/model.onnx"
    DMLPREP_DATA "${folder}/model.onnx.data"
    ADDITIONAL_CLEAN_FILES "${folder}/model.onnx.data;${depfile}")
endfunction()

function(dmlprep_install target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DESTINATION;COMPONENT" "")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_DESTINATION)
    message(FATAL_ERROR "dmlprep_install(${target}): write DESTINATION <folder> [COMPONENT <name>]")
  endif()
  get_target_property(model ${target} DMLPREP_MODEL)
  if(NOT model)
    message(FATAL_ERROR "dmlprep_install(${target}): dmlprep_add_model created no such target")
  endif()
  get_filename_component(folder "${model}" DIRECTORY)
  set(component)
  if(arg_COMPONENT)
    set(component COMPONENT "${arg_COMPONENT}")
  endif()
  install(FILES "${model}" DESTINATION "${arg_DESTINATION}/${target}" ${component})
  install(FILES "${model}.data" DESTINATION "${arg_DESTINATION}/${target}" ${component} OPTIONAL)
endfunction()

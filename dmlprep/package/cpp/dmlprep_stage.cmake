# A program needs next to it: the model's files, its contract, and the DLLs, of which System32 has older ones. Set
# DMLPREP_MODEL_FOLDER and DMLPREP_DLLS before you include this file.
define_property(GLOBAL PROPERTY DMLPREP_MODEL_FOLDER BRIEF_DOCS "folder of model.json" FULL_DOCS "folder of model.json")
define_property(GLOBAL PROPERTY DMLPREP_DLLS BRIEF_DOCS "DLLs of the app" FULL_DOCS "onnxruntime.dll and DirectML.dll")
set_property(GLOBAL PROPERTY DMLPREP_MODEL_FOLDER "${DMLPREP_MODEL_FOLDER}")
set_property(GLOBAL PROPERTY DMLPREP_DLLS "${DMLPREP_DLLS}")

# dmlprep_files(VARIABLE [PACKAGE]): the paths of the model's files, its contract and its digest; of this package, or of
# the one in another folder.
function(dmlprep_files variable)
  get_property(folder GLOBAL PROPERTY DMLPREP_MODEL_FOLDER)
  if(ARGC GREATER 1)
    set(folder "${ARGV1}")
  endif()
  file(READ "${folder}/model.json" contract)
  set(found "${folder}/model.json" "${folder}/model.json.sha256")
  string(JSON model GET "${contract}" model)
  dmlprep_model_files(found "${folder}" "${model}")
  # The original, for providers of vendors.
  string(JSON model ERROR_VARIABLE none GET "${contract}" original)
  if(model)
    dmlprep_model_files(found "${folder}" "${model}")
  endif()
  # Models of other sizes, which share their data files.
  string(JSON count ERROR_VARIABLE none LENGTH "${contract}" buckets)
  if(count GREATER 0)
    math(EXPR last "${count} - 1")
    foreach(index RANGE ${last})
      string(JSON model GET "${contract}" buckets ${index} model)
      dmlprep_model_files(found "${folder}" "${model}")
    endforeach()
  endif()
  list(REMOVE_DUPLICATES found)
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# dmlprep_model_files(VARIABLE FOLDER MODEL): adds the paths of a model and of its data files, by its JSON in the contract.
function(dmlprep_model_files variable folder model)
  set(found ${${variable}})
  string(JSON name GET "${model}" file)
  list(APPEND found "${folder}/${name}")
  string(JSON count LENGTH "${model}" data)
  if(count GREATER 0)
    math(EXPR last "${count} - 1")
    foreach(index RANGE ${last})
      string(JSON name GET "${model}" data ${index})
      list(APPEND found "${folder}/${name}")
    endforeach()
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# dmlprep_stage(TARGET [FOLDER [PACKAGE]]): copies them, the model's into FOLDER below the program's. A program with several
# models calls it once for each: one package brings the loader, the others are named by their folders. Nothing is copied
# that is there already and the same.
function(dmlprep_stage target)
  set(to "$<TARGET_FILE_DIR:${target}>")
  set(model_to "${to}")
  if(ARGC GREATER 1)
    set(model_to "${to}/${ARGV1}")
  endif()
  if(ARGC GREATER 2)
    dmlprep_files(files "${ARGV2}")
  else()
    dmlprep_files(files)
  endif()
  get_property(dlls GLOBAL PROPERTY DMLPREP_DLLS)
  if(NOT dlls)
    message(WARNING "${target}: neither ONNXRUNTIME_DLL nor DIRECTML_DLL is set, so put both next to the program")
  endif()
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${model_to}"
    COMMAND "${CMAKE_COMMAND}" -E copy_if_different ${files} "${model_to}"
    VERBATIM)
  if(dlls)
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND "${CMAKE_COMMAND}" -E copy_if_different ${dlls} "${to}"
      VERBATIM)
  endif()
endfunction()

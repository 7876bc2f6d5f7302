// The loader for ES modules: the same classes as those of require('./dmlprep_model.cjs').
export {
  Model, ModelError, PackageDamaged, RuntimeMissing, AdapterMissing, BadInput, DeviceRemoved, OutOfMemory, ARRAYS,
} from './dmlprep_model.cjs';

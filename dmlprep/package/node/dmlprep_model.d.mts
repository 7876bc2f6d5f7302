export * from './dmlprep_model.cjs';

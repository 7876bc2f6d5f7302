// Types of the loader. Names and element types of inputs and outputs are those of this model.
/// <reference lib="esnext.disposable" />

/** The typed array of each element type. A float16 is its bits. */
export interface ArrayTypes {
  float16: Uint16Array;
  float32: Float32Array;
  float64: Float64Array;
  int8: Int8Array;
  int16: Int16Array;
  int32: Int32Array;
  int64: BigInt64Array;
  uint8: Uint8Array;
  uint16: Uint16Array;
  uint32: Uint32Array;
  uint64: BigUint64Array;
  bool: Uint8Array;
}

export type ElementType = keyof ArrayTypes;

/** Sizes or numbers of elements, by the name of a dimension. */
export type Sizes = Readonly<Record<string, number>>;

/** Arrays that an input also accepts. Newer versions of Node have Float16Array. */
interface MoreArrays {
  float16: typeof globalThis extends { Float16Array: { prototype: infer T } } ? T : never;
  uint8: Uint8ClampedArray;
}

/** An output: all elements, row by row. It fits as an input of another model. */
export interface Output<T extends ElementType> {
  readonly type: T;
  readonly data: ArrayTypes[T];
  readonly shape: readonly number[];
}

/** An input: an array with its shape, or a tensor of onnxruntime-node (`ort.TypedTensor`). */
export type Input<T extends ElementType> =
  | {
      readonly type?: T;
      readonly data: ArrayTypes[T] | (T extends keyof MoreArrays ? MoreArrays[T] : never);
      readonly shape: readonly number[];
    }
  | { readonly type: T; readonly data: ArrayTypes[T]; readonly dims: readonly number[] };

export interface Inputs {
@INPUTS@
}

export interface Outputs {
@OUTPUTS@
}

/** An input or output in `model.json`; model.schema.json describes its other fields. */
export interface TensorInfo {
  readonly name: string;
  readonly type: ElementType;
  /** The size of each dimension, or the name of a free dimension. */
  readonly shape: readonly (number | string)[];
  readonly [field: string]: unknown;
}

export type Device = 'dml' | 'cpu' | 'dml-or-cpu';

export interface Options {
  /** `dml` (default), `cpu`, or `dml-or-cpu`: the CPU if DirectML is not available. */
  device?: Device;
  /** DXGI's number of the adapter; 0 (default) is the adapter of the desktop. */
  adapter?: number;
  /** Sizes of free dimensions; in a package with buckets, sizes of the app's inputs. */
  sizes?: Sizes;
  /** `false`: no first run with zeros. */
  warmUp?: boolean;
  /** Returns the content of a file by its name, null if it is missing: for encrypted models. */
  read?: (name: string) => Uint8Array | null | Promise<Uint8Array | null>;
  /** The module onnxruntime-node, if the loader cannot find it with `require`. */
  runtime?: object;
}

export class Model {
  private constructor();

  /**
   * Load the model.
   * @param folder the folder of `model.json`; by default the folder of the loader.
   * @throws {ModelError} the model cannot be loaded; the subclass gives the reason.
   */
  static load(folder?: string, options?: Options): Promise<Model>;

  /** The device option of `load` or `reopen`. */
  readonly asked: Device;
  /** The device that runs the model; empty if the model is closed or lost its device. */
  readonly device: 'dml' | 'cpu' | '';
  /** A sentence: how the loader knows the device. */
  readonly evidence: string;
  /** Why the model runs on the CPU although DirectML was asked for; otherwise empty. `process.emitWarning` gets it once. */
  readonly notice: string;
  /** The content of `model.json`. */
  readonly contract: Readonly<Record<string, unknown>>;
  /** The inputs of the loaded bucket. */
  readonly inputs: readonly TensorInfo[];
  readonly outputs: readonly TensorInfo[];
  /** The name of the loaded bucket; empty without buckets. */
  readonly bucket: string;
  /** Elements that the app must add to its inputs for this bucket, by dimension. */
  readonly padding: Sizes;

  /**
   * Run once, after earlier calls of this model. onnxruntime-node computes in the calling thread.
   * @throws {BadInput} an input is missing or unknown, or has the wrong type or shape.
   * @throws {DeviceRemoved} call `reopen`.
   * @throws {OutOfMemory} free memory, then call `reopen`.
   */
  run(inputs: Inputs): Promise<Outputs>;

  /**
   * The bucket for these sizes; loads nothing.
   * @throws {BadInput} no bucket is large enough, or the package has no buckets.
   */
  choose(sizes: Sizes): { bucket: string; sizes: Sizes; padding: Sizes };

  /** Switch to the bucket for these sizes. Sessions of other buckets stay open. After an error, the bucket stays as before. */
  take(sizes: Sizes): Promise<void>;

  /** Release all sessions, and create one for the loaded bucket; by default on the device `asked`. */
  reopen(device?: Device): Promise<void>;

  /** Release all sessions. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The base class of the loader's errors. `cause` is the error of onnxruntime-node or of the file system. */
export class ModelError extends Error {}

/** A file is missing or differs from the contract. */
export class PackageDamaged extends ModelError {
  readonly name: 'PackageDamaged';
  readonly file: string;
}

/** onnxruntime-node is missing, too old, or without DirectML. */
export class RuntimeMissing extends ModelError {
  readonly name: 'RuntimeMissing';
}

/** The adapter does not exist or cannot be used (887A0002, 887A0004, C0262002). */
export class AdapterMissing extends ModelError {
  readonly name: 'AdapterMissing';
}

/** An input does not fit the contract. */
export class BadInput extends ModelError {
  readonly name: 'BadInput';
}

/** The GPU was removed, hung or was reset (887A0005, 887A0006, 887A0007, 887A0020). */
export class DeviceRemoved extends ModelError {
  readonly name: 'DeviceRemoved';
}

/** The GPU or the system is out of memory (8007000E). */
export class OutOfMemory extends ModelError {
  readonly name: 'OutOfMemory';
}

/** The constructor of the typed array of each element type. */
export const ARRAYS: { readonly [T in ElementType]: new (length: number) => ArrayTypes[T] };

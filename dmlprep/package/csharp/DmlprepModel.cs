// Load a packaged model on DirectML, and run it, as ONNX Runtime's DirectML provider demands. C# 7.2; .NET Framework 4.7.2,
// .NET Core 2.1 or newer.
//
//     using (var model = new Model("app", new Options { Device = Device.DirectMLOrCpu }))
//         Dictionary<string, Tensor> outputs = model.Run(inputs);
//
// Needs the NuGet package Microsoft.ML.OnnxRuntime.DirectML. README.md says what to do about each exception.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

namespace Dmlprep
{
    /// <summary>What runs the model; DirectMLOrCpu is the CPU where DirectML cannot be had: Notice then says why.</summary>
    public enum Device
    {
        DirectML,
        Cpu,
        DirectMLOrCpu,
    }

    public sealed class Options
    {
        public Device Device { get; set; } = Device.DirectML;

        /// <summary>DXGI's number (0 is the adapter of the desktop), high_performance, minimum_power, a vendor (NVIDIA, AMD, Intel,
        /// Qualcomm), or a part of a name.</summary>
        public string Adapter { get; set; } = "0";

        /// <summary>Sizes of free dimensions, by name or denotation.</summary>
        public IDictionary<string, long> Sizes { get; set; } = new Dictionary<string, long>();

        /// <summary>DirectML's own shaders in place of the vendor's kernels.</summary>
        public bool DisableMetacommands { get; set; }

        /// <summary>Run once with zeros while loading.</summary>
        public bool WarmUp { get; set; } = true;

        /// <summary>Gives a file's bytes by its name, in place of the folder; null where there is none. For models kept
        /// encrypted. ONNX Runtime for C# takes no data files from memory, so the model must have its weights inside.</summary>
        public Func<string, byte[]> Read { get; set; }
    }

    /// <summary>A tensor on the CPU, row by row without gaps.</summary>
    public sealed class Tensor
    {
        /// <param name="data">An array of one dimension: float[], byte[], long[] ...; float16 as its bits in ushort[].</param>
        /// <param name="shape">Its sizes.</param>
        public Tensor(Array data, params long[] shape)
        {
            Data = data;
            Shape = shape;
        }

        public Array Data { get; }

        public long[] Shape { get; }
    }

    /// <summary>A model of a package, ready to run. Threads may share it.</summary>
    public sealed class Model : IDisposable
    {
        // Sessions of DirectML are neither made nor run side by side: some drivers crash, even for two different sessions.
        private static readonly object OneAtATime = new object();

        private readonly string _folder;
        private readonly Options _options;
        private readonly Func<string, byte[]> _read;
        private readonly Contract _contract;
        private InferenceSession _session;
        private SessionLostException _lost;

        /// <summary>The model of the package in a folder, checked against model.json, ready to run.</summary>
        /// <exception cref="ModelException">One of the loader's errors.</exception>
        public Model(string folder, Options options = null)
        {
            _options = options ?? new Options();
            _folder = _options.Read == null ? Path.GetFullPath(folder) : null;
            _read = _options.Read ?? (name => File.ReadAllBytes(Path.Combine(_folder, name)));
            _contract = new Contract(_read);
            Reopen(_options.Device);
        }

        /// <summary>Inputs as the contract describes them.</summary>
        public IReadOnlyList<TensorInfo> Inputs
        {
            get { return _contract.Inputs; }
        }

        /// <summary>Outputs as the contract describes them.</summary>
        public IReadOnlyList<TensorInfo> Outputs
        {
            get { return _contract.Outputs; }
        }

        /// <summary>DirectML or Cpu: what runs it.</summary>
        public Device Device { get; private set; }

        /// <summary>Why it runs on the CPU though DirectML was asked for; empty where it does not.</summary>
        public string Notice { get; private set; } = "";

        /// <summary>A new session: after DeviceRemovedException or OutOfDeviceMemoryException.</summary>
        public void Reopen(Device device = Device.DirectML)
        {
            lock (OneAtATime)
            {
                Close();
                Notice = "";
                byte[] model = _contract.Checked(_read, _folder);
                if (device != Device.Cpu)
                {
                    try
                    {
                        Open(model, Device.DirectML);
                        return;
                    }
                    catch (ModelException error) when (device == Device.DirectMLOrCpu && !(error is BadInputException))
                    {
                        Close();
                        Notice = "DirectML cannot be used, so the model runs on the CPU, which is slower: " + error.Message;
                    }
                }
                Open(model, Device.Cpu);
            }
        }

        /// <summary>Gives the session's memory back.</summary>
        public void Close()
        {
            lock (OneAtATime)
            {
                _lost = null;
                InferenceSession session = _session;
                _session = null;
                session?.Dispose();
            }
        }

        public void Dispose()
        {
            Close();
        }

        /// <summary>Run once; other threads wait meanwhile, whichever model they run.</summary>
        /// <param name="inputs">Tensors by the names of the contract.</param>
        public Dictionary<string, Tensor> Run(IReadOnlyDictionary<string, Tensor> inputs)
        {
            foreach (TensorInfo one in _contract.Inputs)
                CheckInput(one, inputs);
            string strange = inputs.Keys.FirstOrDefault(name => _contract.Inputs.All(one => one.Name != name));
            if (strange != null)
                throw new BadInputException("the model has no input '" + strange + "'; it has: "
                    + string.Join(", ", _contract.Inputs.Select(one => one.Name)));
            lock (OneAtATime)
            {
                if (_lost != null)
                    throw _lost.Again();
                if (_session == null)
                    throw new ModelException("the model is closed: call Reopen()");
                try
                {
                    return RunNow(inputs);
                }
                catch (Exception error) when (!(error is ModelException))
                {
                    ModelException found = Errors.Translated(error);
                    if (found is SessionLostException)
                    {
                        Close();
                        _lost = (SessionLostException)found;
                    }
                    throw found;
                }
            }
        }

        private Dictionary<string, Tensor> RunNow(IReadOnlyDictionary<string, Tensor> inputs)
        {
            var pinned = new List<GCHandle>();
            var values = new List<OrtValue>();
            string[] names = _contract.Outputs.Select(one => one.Name).ToArray();
            try
            {
                foreach (TensorInfo one in _contract.Inputs)
                {
                    Tensor tensor = inputs[one.Name];
                    GCHandle handle = GCHandle.Alloc(tensor.Data, GCHandleType.Pinned);
                    pinned.Add(handle);
                    values.Add(OrtValue.CreateTensorValueWithData(OrtMemoryInfo.DefaultInstance, Types.Of(one).Element, tensor.Shape,
                        handle.AddrOfPinnedObject(), Buffer.ByteLength(tensor.Data)));
                }
                using (var settings = new RunOptions())
                using (IDisposableReadOnlyCollection<OrtValue> answers =
                    _session.Run(settings, _contract.Inputs.Select(one => one.Name).ToArray(), values, names))
                    return answers.Select((value, index) => Tuple.Create(names[index], Types.Copied(_contract.Outputs[index], value)))
                        .ToDictionary(pair => pair.Item1, pair => pair.Item2);
            }
            finally
            {
                foreach (OrtValue value in values)
                    value.Dispose();
                foreach (GCHandle handle in pinned)
                    handle.Free();
            }
        }

        private void Open(byte[] model, Device device)
        {
            foreach (TensorInfo one in _contract.Inputs.Concat(_contract.Outputs))
                Types.Of(one);
            if (_contract.Data.Length > 0 && _folder == null)
                throw new ModelException("ONNX Runtime for C# takes no data files from memory: load this model from a folder");
            try
            {
                Native.Prepare(_contract.Lowest);
                using (var settings = new SessionOptions())
                {
                    settings.ExecutionMode = ExecutionMode.ORT_SEQUENTIAL;
                    settings.GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL;
                    settings.LogSeverityLevel = OrtLoggingLevel.ORT_LOGGING_LEVEL_ERROR;
                    if (device == Device.DirectML)
                    {
                        settings.EnableMemoryPattern = false;
                        var adapter = new Dictionary<string, string> { { "device_id", Adapters.Find(_options.Adapter).ToString() } };
                        if (_options.DisableMetacommands)
                            adapter["disable_metacommands"] = "true";
                        settings.AppendExecutionProvider("DML", adapter);
                    }
                    FixSizes(settings);
                    _session = _contract.Data.Length > 0
                        ? new InferenceSession(Path.Combine(_folder, _contract.Model), settings)
                        : new InferenceSession(model, settings);
                }
            }
            catch (Exception error) when (!(error is ModelException))
            {
                throw Errors.Translated(error is TypeInitializationException ? error.InnerException ?? error : error);
            }
            Device = device;
            if (_options.WarmUp)
                RunWithZeros();
        }

        private void FixSizes(SessionOptions settings)
        {
            foreach (KeyValuePair<string, long> size in _options.Sizes)
            {
                if (_contract.Inputs.Any(one => one.FreeNames.Contains(size.Key) && size.Key != ""))
                    settings.AddFreeDimensionOverrideByName(size.Key, size.Value);
                else if (_contract.Denotations.Contains(size.Key))
                    settings.AddFreeDimensionOverride(size.Key, size.Value);
                else
                    throw new BadInputException("the model has no free dimension '" + size.Key + "'");
            }
        }

        // The first run compiles shaders. Only where all sizes are known.
        private void RunWithZeros()
        {
            var zeros = new Dictionary<string, Tensor>();
            foreach (TensorInfo one in _contract.Inputs)
            {
                long[] shape = ShapeOf(one);
                if (shape.Any(size => size < 0))
                    return;
                zeros[one.Name] = new Tensor(Array.CreateInstance(Types.Of(one).Managed, shape.Aggregate(1L, (all, size) => all * size)), shape);
            }
            Run(zeros);
        }

        private long[] ShapeOf(TensorInfo one)
        {
            long given;
            return one.Shape.Select((size, axis) => size < 0 && _options.Sizes.TryGetValue(one.FreeNames[axis], out given) ? given : size).ToArray();
        }

        private void CheckInput(TensorInfo one, IReadOnlyDictionary<string, Tensor> inputs)
        {
            Tensor given;
            if (!inputs.TryGetValue(one.Name, out given) || given == null || given.Data == null || given.Shape == null)
                throw new BadInputException("input '" + one.Name + "' is missing");
            long[] wanted = ShapeOf(one);
            bool fits = given.Shape.Length == wanted.Length
                && given.Shape.Zip(wanted, (size, expected) => size >= 0 && (expected < 0 || size == expected)).All(same => same);
            if (!fits)
                throw new BadInputException("input '" + one.Name + "' is [" + string.Join(", ", given.Shape) + "], and the model takes ["
                    + string.Join(", ", wanted.Select(size => size < 0 ? "?" : size.ToString())) + "]");
            Types.Row type = Types.Of(one);
            if (given.Data.GetType() != type.Managed.MakeArrayType())
                throw new BadInputException("input '" + one.Name + "' needs " + type.Managed.Name + "[] for " + one.Type);
            long count = given.Shape.Aggregate(1L, (all, size) => all * size);
            if (given.Data.LongLength != count)
                throw new BadInputException("input '" + one.Name + "' has " + given.Data.LongLength + " elements, not " + count);
        }
    }

    /// <summary>Element types, by numpy's names in the contract.</summary>
    internal static class Types
    {
        internal sealed class Row
        {
            public Row(Type managed, TensorElementType element)
            {
                Managed = managed;
                Element = element;
            }

            public Type Managed { get; }

            public TensorElementType Element { get; }
        }

        private static readonly Dictionary<string, Row> Rows = new Dictionary<string, Row>
        {
            { "float16", new Row(typeof(ushort), TensorElementType.Float16) },
            { "float32", new Row(typeof(float), TensorElementType.Float) },
            { "float64", new Row(typeof(double), TensorElementType.Double) },
            { "int8", new Row(typeof(sbyte), TensorElementType.Int8) },
            { "int16", new Row(typeof(short), TensorElementType.Int16) },
            { "int32", new Row(typeof(int), TensorElementType.Int32) },
            { "int64", new Row(typeof(long), TensorElementType.Int64) },
            { "uint8", new Row(typeof(byte), TensorElementType.UInt8) },
            { "uint16", new Row(typeof(ushort), TensorElementType.UInt16) },
            { "uint32", new Row(typeof(uint), TensorElementType.UInt32) },
            { "uint64", new Row(typeof(ulong), TensorElementType.UInt64) },
            { "bool", new Row(typeof(bool), TensorElementType.Bool) },
        };

        public static Row Of(TensorInfo one)
        {
            Row found;
            if (!Rows.TryGetValue(one.Type, out found))
                throw new ModelException("'" + one.Name + "' is " + one.Type + ", which this loader does not carry");
            return found;
        }

        public static Tensor Copied(TensorInfo one, OrtValue value)
        {
            byte[] raw = value.GetTensorMutableRawData().ToArray();
            long[] shape = value.GetTensorTypeAndShape().Shape;
            Array data = Array.CreateInstance(Of(one).Managed, shape.Aggregate(1L, (all, size) => all * size));
            Buffer.BlockCopy(raw, 0, data, 0, raw.Length);
            return new Tensor(data, shape);
        }
    }

    /// <summary>The DLLs: those of the app, never those of System32, which are older.</summary>
    internal static class Native
    {
        private const uint WithAlteredSearchPath = 8; // LOAD_WITH_ALTERED_SEARCH_PATH: what it needs lies beside it

        public static void Prepare(string lowest)
        {
            string version = OrtEnv.Instance().GetVersionString();
            if (Environment.OSVersion.Platform == PlatformID.Win32NT)
            {
                string path = Process.GetCurrentProcess().Modules.Cast<ProcessModule>()
                    .Select(module => module.FileName)
                    .FirstOrDefault(name => Path.GetFileName(name).Equals("onnxruntime.dll", StringComparison.OrdinalIgnoreCase));
                string folder = path == null ? "" : Path.GetDirectoryName(path);
                if (folder.Equals(Environment.SystemDirectory, StringComparison.OrdinalIgnoreCase))
                    throw new RuntimeMissingException("onnxruntime.dll is that of Windows (" + path + "), version " + version
                        + ": put the one of the NuGet package Microsoft.ML.OnnxRuntime.DirectML beside the program");
                // ONNX Runtime asks for DirectML.dll by its name alone: the one beside it must be in memory before.
                if (folder != "")
                    LoadLibraryEx(Path.Combine(folder, "DirectML.dll"), IntPtr.Zero, WithAlteredSearchPath);
            }
            if (Older(version, lowest))
                throw new RuntimeMissingException("onnxruntime.dll is " + version + ", older than " + lowest
                    + ", the oldest that this model was made for");
        }

        private static bool Older(string version, string least)
        {
            int[] have = version.Split('.').Take(2).Select(int.Parse).ToArray();
            int[] want = least.Split('.').Take(2).Select(int.Parse).ToArray();
            return have[0] != want[0] ? have[0] < want[0] : have[1] < want[1];
        }

        [DllImport("kernel32.dll", EntryPoint = "LoadLibraryExW", CharSet = CharSet.Unicode, SetLastError = true)]
        private static extern IntPtr LoadLibraryEx(string name, IntPtr reserved, uint flags);
    }
}

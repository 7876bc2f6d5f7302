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

        /// <summary>Sizes of free dimensions, by name or denotation; of a package with buckets, those of the app's inputs: Model.Bucket
        /// and Model.Padding then say what was chosen, which is the first bucket without any.</summary>
        public IDictionary<string, long> Sizes { get; set; } = new Dictionary<string, long>();

        /// <summary>DirectML's own shaders in place of the vendor's kernels.</summary>
        public bool DisableMetacommands { get; set; }

        /// <summary>Run once with zeros while loading.</summary>
        public bool WarmUp { get; set; } = true;

        /// <summary>Gives a file's bytes by its name, in place of the folder; null where there is none. For models kept
        /// encrypted. ONNX Runtime for C# does not accept data files from memory, so the model must have its weights inside.</summary>
        public Func<string, byte[]> Read { get; set; }
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
        private readonly Dictionary<string, InferenceSession> _sessions = new Dictionary<string, InferenceSession>(); // by bucket
        private IDictionary<string, long> _sizes;
        private Choice _chosen;
        private SessionLostException _lost;

        /// <summary>The model of the package in a folder, checked against model.json, ready to run.</summary>
        /// <exception cref="ModelException">One of the loader's errors.</exception>
        public Model(string folder, Options options = null)
        {
            _options = options ?? new Options();
            _folder = _options.Read == null ? Path.GetFullPath(folder) : null;
            _read = _options.Read ?? (name => File.ReadAllBytes(Path.Combine(_folder, name)));
            _contract = new Contract(_read);
            _sizes = new Dictionary<string, long>(_options.Sizes);
            _chosen = Buckets.Wanted(_contract, _sizes);
            Reopen(_options.Device);
        }

        /// <summary>Inputs of the model that is loaded, as the contract describes them.</summary>
        public IReadOnlyList<TensorInfo> Inputs
        {
            get { return _chosen.Part.Inputs; }
        }

        /// <summary>Outputs as the contract describes them.</summary>
        public IReadOnlyList<TensorInfo> Outputs
        {
            get { return _chosen.Part.Outputs; }
        }

        /// <summary>DirectML or Cpu: what runs it.</summary>
        public Device Device { get; private set; }

        /// <summary>Why it runs on the CPU though DirectML was asked for; empty where it does not.</summary>
        public string Notice { get; private set; } = "";

        /// <summary>Name of the bucket that is loaded; "" for a package without buckets.</summary>
        public string Bucket
        {
            get { return _chosen.Bucket; }
        }

        /// <summary>By dimension, how many elements the app has to add to its inputs for that bucket.</summary>
        public IReadOnlyDictionary<string, long> Padding
        {
            get { return _chosen.Padding; }
        }

        /// <summary>Which bucket these sizes would take. Nothing is loaded.</summary>
        /// <exception cref="BadInputException">No bucket has room for them, or the package has none.</exception>
        public Choice Choose(IDictionary<string, long> sizes)
        {
            return Buckets.Choose(_contract.Buckets, sizes);
        }

        /// <summary>Go on with the bucket for these sizes, for all threads that share this model. Its session is made where it was
        /// not before; the others stay, each with weights of its own on the device, until Close or Reopen.</summary>
        /// <exception cref="ModelException">No bucket has room for them, or it cannot be loaded: then the one of before stays.</exception>
        public void Take(IDictionary<string, long> sizes)
        {
            Buckets.Demand(_contract.Buckets);
            lock (OneAtATime)
            {
                Choice wanted = Buckets.Wanted(_contract, sizes), before = _chosen;
                IDictionary<string, long> sizesBefore = _sizes;
                DemandOpen();
                _chosen = wanted;
                _sizes = new Dictionary<string, long>(sizes);
                try
                {
                    if (!_sessions.ContainsKey(Bucket))
                        Open(_contract.Checked(_chosen.Part, _read, _folder), Device);
                }
                catch (ModelException)
                {
                    LetGo(Bucket);
                    _chosen = before;
                    _sizes = sizesBefore;
                    throw;
                }
            }
        }

        /// <summary>A new session of the bucket that is loaded, and no others: after DeviceRemovedException or
        /// OutOfDeviceMemoryException.</summary>
        public void Reopen(Device device = Device.DirectML)
        {
            lock (OneAtATime)
            {
                Close();
                Notice = "";
                byte[] model = _contract.Checked(_chosen.Part, _read, _folder);
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
                        Notice = "DirectML is not available: the model runs on the CPU, which is slower: " + error.Message;
                    }
                }
                Open(model, Device.Cpu);
            }
        }

        /// <summary>Gives the memory of all sessions back.</summary>
        public void Close()
        {
            lock (OneAtATime)
            {
                _lost = null;
                foreach (string bucket in _sessions.Keys.ToArray())
                    LetGo(bucket);
            }
        }

        private void LetGo(string bucket)
        {
            InferenceSession session;
            if (!_sessions.TryGetValue(bucket, out session))
                return;
            _sessions.Remove(bucket);
            session.Dispose();
        }

        private void DemandOpen()
        {
            if (_lost != null)
                throw _lost.Again();
            if (_sessions.Count == 0)
                throw new ModelException("the model is closed: call Reopen()");
        }

        public void Dispose()
        {
            Close();
        }

        /// <summary>Run once; other threads wait meanwhile, whichever model they run.</summary>
        /// <param name="inputs">Tensors by the names of the contract.</param>
        public Dictionary<string, Tensor> Run(IReadOnlyDictionary<string, Tensor> inputs)
        {
            lock (OneAtATime)
            {
                foreach (TensorInfo one in Inputs)
                    CheckInput(one, inputs);
                string strange = inputs.Keys.FirstOrDefault(name => Inputs.All(one => one.Name != name));
                if (strange != null)
                    throw new BadInputException("the model has no input '" + strange + "'; it has: "
                        + string.Join(", ", Inputs.Select(one => one.Name)));
                DemandOpen();
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
            string[] names = Outputs.Select(one => one.Name).ToArray();
            try
            {
                foreach (TensorInfo one in Inputs)
                {
                    Tensor tensor = inputs[one.Name];
                    GCHandle handle = GCHandle.Alloc(tensor.Data, GCHandleType.Pinned);
                    pinned.Add(handle);
                    values.Add(OrtValue.CreateTensorValueWithData(OrtMemoryInfo.DefaultInstance, Types.Of(one).Element, tensor.Shape,
                        handle.AddrOfPinnedObject(), Buffer.ByteLength(tensor.Data)));
                }
                using (var settings = new RunOptions())
                using (IDisposableReadOnlyCollection<OrtValue> answers =
                    _sessions[Bucket].Run(settings, Inputs.Select(one => one.Name).ToArray(), values, names))
                    return answers.Select((value, index) => Tuple.Create(names[index], Types.Copied(Outputs[index], value)))
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
            Part part = _chosen.Part;
            foreach (TensorInfo one in part.Inputs.Concat(part.Outputs))
                Types.Of(one);
            if (part.Data.Length > 0 && _folder == null)
                throw new ModelException("ONNX Runtime for C# does not accept data files from memory: load this model from a folder");
            try
            {
                Native.Prepare(part.Lowest);
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
                    _sessions[Bucket] = part.Data.Length > 0
                        ? new InferenceSession(Path.Combine(_folder, part.Model), settings)
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
            foreach (KeyValuePair<string, long> size in _sizes.Where(size => !_chosen.Part.Dimensions.Contains(size.Key)))
            {
                if (Inputs.Any(one => one.FreeNames.Contains(size.Key) && size.Key != ""))
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
            foreach (TensorInfo one in Inputs)
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
            return one.Shape.Select((size, axis) => size < 0 && _sizes.TryGetValue(one.FreeNames[axis], out given) ? given : size).ToArray();
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
                throw new BadInputException("input '" + one.Name + "' is [" + string.Join(", ", given.Shape) + "], but the model needs ["
                    + string.Join(", ", wanted.Select(size => size < 0 ? "?" : size.ToString())) + "]"
                    + (Bucket == "" ? "" : "; the bucket " + Bucket + " has fixed sizes: pad the input"));
            Types.Row type = Types.Of(one);
            if (given.Data.GetType() != type.Managed.MakeArrayType())
                throw new BadInputException("input '" + one.Name + "' needs " + type.Managed.Name + "[] for " + one.Type);
            long count = given.Shape.Aggregate(1L, (all, size) => all * size);
            if (given.Data.LongLength != count)
                throw new BadInputException("input '" + one.Name + "' has " + given.Data.LongLength + " elements, not " + count);
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
                    throw new RuntimeMissingException("onnxruntime.dll is the one of Windows (" + path + "), version " + version
                        + ": put the one of the NuGet package Microsoft.ML.OnnxRuntime.DirectML next to the program");
                // ONNX Runtime asks for DirectML.dll by its name alone: the one beside it must be in memory before.
                if (folder != "")
                    LoadLibraryEx(Path.Combine(folder, "DirectML.dll"), IntPtr.Zero, WithAlteredSearchPath);
            }
            if (Older(version, lowest))
                throw new RuntimeMissingException("onnxruntime.dll is " + version + ", older than " + lowest
                    + ", the oldest version for this model");
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

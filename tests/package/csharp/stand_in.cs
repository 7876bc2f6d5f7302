// A stand-in for the assembly Microsoft.ML.OnnxRuntime: the names and signatures that the loader uses, and sessions whose errors
// the checks choose. Each output is the first numbers of the first input, again and again.
#nullable enable
#pragma warning disable CS1591
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;
using Microsoft.ML.OnnxRuntime.Tensors;

namespace Microsoft.ML.OnnxRuntime.Tensors
{
    public enum TensorElementType { Float = 1, UInt8, Int8, UInt16, Int16, Int32, Int64, String, Bool, Float16, Double, UInt32, UInt64 }
}

namespace Microsoft.ML.OnnxRuntime
{
    public enum ExecutionMode { ORT_SEQUENTIAL, ORT_PARALLEL }

    public enum GraphOptimizationLevel { ORT_DISABLE_ALL = 0, ORT_ENABLE_ALL = 99 }

    public enum OrtLoggingLevel { ORT_LOGGING_LEVEL_VERBOSE, ORT_LOGGING_LEVEL_INFO, ORT_LOGGING_LEVEL_WARNING, ORT_LOGGING_LEVEL_ERROR }

    public enum OrtHardwareDeviceType { CPU, GPU, NPU }

    public interface IDisposableReadOnlyCollection<T> : IReadOnlyCollection<T>, IDisposable;

    public sealed class DisposableList<T> : List<T>, IDisposableReadOnlyCollection<T>
    {
        public void Dispose() { }
    }

    public class OnnxRuntimeException(string message) : Exception(message);

    public static class StandIn
    {
        public static string Version = "1.24.4", RunError = "", OpenError = "", VendorError = "";
        public static readonly List<SessionOptions> Opened = [];
        public static readonly List<OrtEpDevice> Devices = [];
        public static readonly ManualResetEventSlim Go = new(true);
        public static object Source = "";
        public static bool InMemoryOfDirectML = true, Unused;
        public static int Running, AtOnce, Creating, CreatedAtOnce, Runs;
    }

    public class OrtHardwareDevice(OrtHardwareDeviceType type)
    {
        public OrtHardwareDeviceType Type => type;
    }

    public class OrtEpDevice(string name, OrtHardwareDeviceType type)
    {
        public string EpName => name;
        public OrtHardwareDevice HardwareDevice => new(type);
    }

    public class OrtEnv
    {
        public static OrtEnv Instance() => new();
        public string GetVersionString() => StandIn.Version;
        public IReadOnlyList<OrtEpDevice> GetEpDevices() => StandIn.Devices;

        public void RegisterExecutionProviderLibrary(string registrationName, string libraryPath)
        {
            if (!File.Exists(libraryPath))
                throw new OnnxRuntimeException($"cannot load {libraryPath}");
            if (StandIn.Devices.Any(one => one.EpName == registrationName))
                throw new OnnxRuntimeException($"{registrationName} is already registered");
            StandIn.Devices.Add(new OrtEpDevice(registrationName, OrtHardwareDeviceType.NPU));
        }
    }

    public class OrtMemoryInfo(string name = "Cpu")
    {
        public static OrtMemoryInfo DefaultInstance => new();
        public string Name => name;
    }

    public class RunOptions : IDisposable
    {
        public bool Terminate { get; set; }
        public void Dispose() { }
    }

    public class SessionOptions : IDisposable
    {
        public ExecutionMode ExecutionMode { get; set; } = ExecutionMode.ORT_PARALLEL;
        public GraphOptimizationLevel GraphOptimizationLevel { get; set; }
        public OrtLoggingLevel LogSeverityLevel { get; set; }
        public bool EnableMemoryPattern { get; set; } = true;
        public readonly Dictionary<string, Dictionary<string, string>> Providers = [];
        public readonly Dictionary<string, long> Sizes = [];

        public void AppendExecutionProvider(string providerName, Dictionary<string, string>? providerOptions = null) =>
            Providers[providerName] = providerOptions ?? [];

        public void AppendExecutionProvider(
            OrtEnv env, IReadOnlyList<OrtEpDevice> epDevices, IReadOnlyDictionary<string, string>? epOptions) =>
            Providers[epDevices[0].EpName] = [];

        public void AddFreeDimensionOverride(string dimDenotation, long dimValue) => Sizes[$"denotation {dimDenotation}"] = dimValue;
        public void AddFreeDimensionOverrideByName(string dimName, long dimValue) => Sizes[dimName] = dimValue;
        public void Dispose() { }
    }

    public class OrtTensorTypeAndShapeInfo
    {
        public long[] Shape { get; set; } = [];
    }

    public sealed class OrtValue(IntPtr place, byte[] own, long[] shape) : IDisposable
    {
        public static OrtValue CreateTensorValueWithData(OrtMemoryInfo memInfo, TensorElementType elementType, long[] shape,
            IntPtr dataBufferPtr, long bufferLengthInBytes) => new(dataBufferPtr, new byte[bufferLengthInBytes], shape);

        public Span<byte> GetTensorMutableRawData()
        {
            if (place != IntPtr.Zero)
                Marshal.Copy(place, own, 0, own.Length);
            return own;
        }

        public OrtTensorTypeAndShapeInfo GetTensorTypeAndShape() => new() { Shape = shape };

        internal void Fill(byte[] raw)
        {
            for (int i = 0; i < own.Length; ++i)
                own[i] = raw[i % raw.Length];
            if (place != IntPtr.Zero)
                Marshal.Copy(own, 0, place, own.Length);
        }

        public void Dispose() { }
    }

    public class InferenceSession : IDisposable
    {
        private readonly string? _provider;

        public InferenceSession(byte[] model, SessionOptions options) : this(options, model) { }

        public InferenceSession(string modelPath, SessionOptions options) : this(options, modelPath) { }

        private InferenceSession(SessionOptions options, object source)
        {
            StandIn.CreatedAtOnce = Math.Max(StandIn.CreatedAtOnce, Interlocked.Increment(ref StandIn.Creating));
            Thread.Sleep(2);
            Interlocked.Decrement(ref StandIn.Creating);
            StandIn.Opened.Add(options);
            StandIn.Source = source;
            _provider = options.Providers.Keys.SingleOrDefault();
            if (_provider == "DML" && StandIn.OpenError != "")
                throw new OnnxRuntimeException(StandIn.OpenError);
            if (_provider is not (null or "DML") && StandIn.VendorError != "")
                throw new OnnxRuntimeException(StandIn.VendorError);
        }

        public IDisposableReadOnlyCollection<OrtMemoryInfo> GetMemoryInfosForInputs() =>
            new DisposableList<OrtMemoryInfo> { new(_provider == "DML" && StandIn.InMemoryOfDirectML ? "DML" : "Cpu") };

        public IDisposableReadOnlyCollection<OrtMemoryInfo> GetMemoryInfosForOutputs() => GetMemoryInfosForInputs();

        public IReadOnlyList<OrtEpDevice?> GetEpDeviceForInputs() =>
            [StandIn.Devices.FirstOrDefault(one => one.EpName == _provider && !StandIn.Unused)];

        public void Run(RunOptions runOptions, IReadOnlyCollection<string> inputNames, IReadOnlyCollection<OrtValue> inputValues,
            IReadOnlyCollection<string> outputNames, IReadOnlyCollection<OrtValue> outputValues)
        {
            StandIn.AtOnce = Math.Max(StandIn.AtOnce, Interlocked.Increment(ref StandIn.Running));
            Thread.Sleep(2);
            while (!StandIn.Go.Wait(2) && !runOptions.Terminate) { }
            Interlocked.Increment(ref StandIn.Runs);
            Interlocked.Decrement(ref StandIn.Running);
            if (runOptions.Terminate)
                throw new OnnxRuntimeException("Exiting due to terminate flag being set to true.");
            if (_provider == "DML" && StandIn.RunError != "")
                throw new OnnxRuntimeException(StandIn.RunError);
            byte[] raw = inputValues.First().GetTensorMutableRawData().ToArray();
            foreach (OrtValue one in outputValues)
                one.Fill(raw);
        }

        public IDisposableReadOnlyCollection<OrtValue> Run(RunOptions runOptions, IReadOnlyCollection<string> inputNames,
            IReadOnlyCollection<OrtValue> inputValues, IReadOnlyCollection<string> outputNames)
        {
            DisposableList<OrtValue> answers = [];
            answers.AddRange(outputNames.Select(_ => new OrtValue(IntPtr.Zero, new byte[40], [1, 10])));
            Run(runOptions, inputNames, inputValues, outputNames, answers);
            return answers;
        }

        public void Dispose() { }
    }
}

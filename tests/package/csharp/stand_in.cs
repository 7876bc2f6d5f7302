// A stand-in for the assembly Microsoft.ML.OnnxRuntime: the names and signatures that the loader uses, and sessions whose errors
// the checks choose. Its only output is the first ten numbers of the first input.
using System;
using System.Collections;
using System.Collections.Generic;
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

    public interface IDisposableReadOnlyCollection<T> : IReadOnlyCollection<T>, IDisposable { }

    public sealed class StandIn
    {
        public static string Version = "1.24.4", RunError = "", OpenError = "";
        public static readonly List<SessionOptions> Opened = new List<SessionOptions>();
        public static object Source;
        public static int Running, AtOnce, Runs;
    }

    public class OrtEnv
    {
        public static OrtEnv Instance()
        {
            return new OrtEnv();
        }

        public string GetVersionString()
        {
            return StandIn.Version;
        }
    }

    public class OrtMemoryInfo
    {
        public static OrtMemoryInfo DefaultInstance
        {
            get { return new OrtMemoryInfo(); }
        }
    }

    public class RunOptions : IDisposable
    {
        public void Dispose() { }
    }

    public class SessionOptions : IDisposable
    {
        public ExecutionMode ExecutionMode { get; set; } = ExecutionMode.ORT_PARALLEL;
        public GraphOptimizationLevel GraphOptimizationLevel { get; set; }
        public OrtLoggingLevel LogSeverityLevel { get; set; }
        public bool EnableMemoryPattern { get; set; } = true;
        public readonly Dictionary<string, Dictionary<string, string>> Providers = new Dictionary<string, Dictionary<string, string>>();
        public readonly Dictionary<string, long> Sizes = new Dictionary<string, long>();

        public void AppendExecutionProvider(string providerName, Dictionary<string, string> providerOptions = null)
        {
            Providers[providerName] = providerOptions;
        }

        public void AddFreeDimensionOverride(string dimDenotation, long dimValue)
        {
            Sizes["denotation " + dimDenotation] = dimValue;
        }

        public void AddFreeDimensionOverrideByName(string dimName, long dimValue)
        {
            Sizes[dimName] = dimValue;
        }

        public void Dispose() { }
    }

    public class OrtTensorTypeAndShapeInfo
    {
        public long[] Shape { get; set; }
    }

    public class OrtValue : IDisposable
    {
        private byte[] _raw;
        private long[] _shape;

        public static OrtValue CreateTensorValueWithData(OrtMemoryInfo memInfo, TensorElementType elementType, long[] shape,
            IntPtr dataBufferPtr, long bufferLengthInBytes)
        {
            var raw = new byte[bufferLengthInBytes];
            Marshal.Copy(dataBufferPtr, raw, 0, raw.Length);
            return Of(raw, shape);
        }

        internal static OrtValue Of(byte[] raw, params long[] shape)
        {
            return new OrtValue { _raw = raw, _shape = shape };
        }

        public Span<byte> GetTensorMutableRawData()
        {
            return _raw;
        }

        public OrtTensorTypeAndShapeInfo GetTensorTypeAndShape()
        {
            return new OrtTensorTypeAndShapeInfo { Shape = _shape };
        }

        public void Dispose() { }
    }

    public class InferenceSession : IDisposable
    {
        private readonly bool _onDirectML;

        public InferenceSession(byte[] model, SessionOptions options) : this(options, model) { }

        public InferenceSession(string modelPath, SessionOptions options) : this(options, modelPath) { }

        private InferenceSession(SessionOptions options, object source)
        {
            StandIn.Opened.Add(options);
            StandIn.Source = source;
            _onDirectML = options.Providers.ContainsKey("DML");
            if (_onDirectML && StandIn.OpenError != "")
                throw new InvalidOperationException(StandIn.OpenError);
        }

        public IDisposableReadOnlyCollection<OrtValue> Run(RunOptions runOptions, IReadOnlyCollection<string> inputNames,
            IReadOnlyCollection<OrtValue> inputValues, IReadOnlyCollection<string> outputNames)
        {
            StandIn.AtOnce = Math.Max(StandIn.AtOnce, Interlocked.Increment(ref StandIn.Running));
            Thread.Sleep(2);
            ++StandIn.Runs;
            Interlocked.Decrement(ref StandIn.Running);
            if (_onDirectML && StandIn.RunError != "")
                throw new InvalidOperationException(StandIn.RunError);
            return new Answers { OrtValue.Of(inputValues.First().GetTensorMutableRawData().Slice(0, 40).ToArray(), 1, 10) };
        }

        public void Dispose() { }

        private sealed class Answers : List<OrtValue>, IDisposableReadOnlyCollection<OrtValue>
        {
            public void Dispose() { }
        }
    }
}

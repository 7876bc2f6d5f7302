// What can go wrong, by what the app should do about it. README.md says more.
using System;

namespace Dmlprep
{
    /// <summary>Base of all errors of the loader.</summary>
    public class ModelException : Exception
    {
        public ModelException(string message) : base(message) { }
    }

    /// <summary>A file is not the one of the contract; <see cref="File"/> names it. Repair the installation.</summary>
    public sealed class PackageDamagedException : ModelException
    {
        public PackageDamagedException(string file, string what) : base(file + " " + what + ": repair the installation")
        {
            File = file;
        }

        public string File { get; }
    }

    /// <summary>There is no onnxruntime.dll with DirectML beside the program, or one that is too old.</summary>
    public sealed class RuntimeMissingException : ModelException
    {
        public RuntimeMissingException(string message) : base(message) { }
    }

    /// <summary>No adapter, or more than one, is what was asked for.</summary>
    public sealed class AdapterMissingException : ModelException
    {
        public AdapterMissingException(string message) : base(message) { }
    }

    /// <summary>An input is missing, or not of the type and shape of the contract.</summary>
    public sealed class BadInputException : ModelException
    {
        public BadInputException(string message) : base(message) { }
    }

    /// <summary>The session is of no use any more: call <see cref="Model.Reopen"/>.</summary>
    public abstract class SessionLostException : ModelException
    {
        protected SessionLostException(string message) : base(message) { }

        /// <summary>The same for another call.</summary>
        internal abstract SessionLostException Again();
    }

    /// <summary>The GPU went away, hung or was reset (887A0005, 887A0006, 887A0007, 887A0020): wait a second, then Reopen.</summary>
    public sealed class DeviceRemovedException : SessionLostException
    {
        public DeviceRemovedException(string message) : base(message) { }

        internal override SessionLostException Again()
        {
            return new DeviceRemovedException(Message);
        }
    }

    /// <summary>The GPU, or the machine, has no memory left (8007000E): free other models, smaller inputs, then Reopen.</summary>
    public sealed class OutOfDeviceMemoryException : SessionLostException
    {
        public OutOfDeviceMemoryException(string message) : base(message) { }

        internal override SessionLostException Again()
        {
            return new OutOfDeviceMemoryException(Message);
        }
    }

    internal static class Errors
    {
        private static readonly string[] Removed = { "887A0005", "887A0006", "887A0007", "887A0020" };
        private static readonly string[] Memory = { "8007000E", "bad allocation", "Failed to allocate memory" };
        private static readonly string[] NoAdapter = { "887A0002", "887A0004", "C0262002" };

        /// <summary>What an error of ONNX Runtime means to the app.</summary>
        public static ModelException Translated(Exception error)
        {
            string text = error.Message;
            string found = Found(text, Removed);
            if (found != null)
                return new DeviceRemovedException("the GPU stopped answering (" + found + "): close other programs that use it, wait a "
                    + "second and call Reopen(). If it happens again, use smaller inputs, DisableMetacommands or another driver, or "
                    + "Reopen(Device.Cpu)");
            found = error is OutOfMemoryException ? "OutOfMemoryException" : Found(text, Memory);
            if (found != null)
                return new OutOfDeviceMemoryException("out of memory (" + found + "): free other models, use smaller inputs, then call "
                    + "Reopen(); or Reopen(Device.Cpu)");
            found = Found(text, NoAdapter);
            if (found != null)
                return new AdapterMissingException("the adapter cannot be used (" + found + "): choose another, or install its driver");
            if (error is DllNotFoundException || error is EntryPointNotFoundException || error is BadImageFormatException)
                return new RuntimeMissingException("no onnxruntime.dll with DirectML can be loaded (" + text + "): add the NuGet package "
                    + "Microsoft.ML.OnnxRuntime.DirectML");
            return new ModelException(text);
        }

        private static string Found(string text, string[] codes)
        {
            return Array.Find(codes, code => text.IndexOf(code, StringComparison.OrdinalIgnoreCase) >= 0);
        }
    }
}

// The graphics adapters of DXGI, by number, preference, vendor or name.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;

namespace Dmlprep
{
    /// <summary>One adapter.</summary>
    internal sealed class Adapter
    {
        public int Number;
        public string Name;
        public uint Vendor;
        public long Luid;
        public bool Software;

        public override string ToString()
        {
            return Number + " " + Name;
        }
    }

    internal static class Adapters
    {
        // PCI ids of the PCI-SIG's list; Qualcomm's drivers for Windows give the ACPI id "QCOM".
        private static readonly Dictionary<string, uint[]> Vendors = new Dictionary<string, uint[]>(StringComparer.OrdinalIgnoreCase)
        {
            { "NVIDIA", new uint[] { 0x10DE } },
            { "AMD", new uint[] { 0x1002, 0x1022 } },
            { "Intel", new uint[] { 0x8086 } },
            { "Qualcomm", new uint[] { 0x4D4F4351, 0x5143 } },
        };

        // The provider's words, and DXGI_GPU_PREFERENCE.
        private static readonly Dictionary<string, int> Preferences = new Dictionary<string, int>
        {
            { "minimum_power", 1 },
            { "high_performance", 2 },
        };

        /// <summary>DXGI's number of the adapter that is asked for: a number, a preference, a vendor, or a part of a name.</summary>
        public static int Find(string wanted)
        {
            int number;
            if (int.TryParse(wanted, out number) && number >= 0)
                return number;
            try
            {
                using (var dxgi = new Dxgi())
                    return Choose(wanted, dxgi.All(), Preferences.ContainsKey(wanted) ? dxgi.First(Preferences[wanted]) : null);
            }
            catch (DllNotFoundException)
            {
                throw new AdapterMissingException("no DXGI: adapters have names only on Windows");
            }
        }

        /// <summary>One of the adapters that are there.</summary>
        public static int Choose(string wanted, IList<Adapter> there, long? preferred)
        {
            if (Preferences.ContainsKey(wanted))
            {
                Adapter first = there.FirstOrDefault(one => !one.Software && one.Luid == preferred);
                if (first == null)
                    throw new AdapterMissingException("DXGI names no GPU for " + wanted + ": choose a number");
                return first.Number;
            }
            List<Adapter> matching = there.Where(one => Vendors.ContainsKey(wanted)
                ? Vendors[wanted].Contains(one.Vendor)
                : one.Name.IndexOf(wanted, StringComparison.OrdinalIgnoreCase) >= 0).ToList();
            if (matching.Count != 1)
                throw new AdapterMissingException(matching.Count + " adapters match '" + wanted + "'; there are: " + string.Join(", ", there));
            return matching[0].Number;
        }

        /// <summary>The methods of DXGI that are needed, by their places in its tables (dxgi.h, dxgi1_6.h).</summary>
        private sealed class Dxgi : IDisposable
        {
            private const int QueryInterface = 0, Release = 2, GetDesc1 = 10, EnumAdapters1 = 12, ByPreference = 29;
            private static Guid _factory1 = new Guid("770aae78-f26f-4dba-a829-253c83d1b387");
            private static Guid _factory6 = new Guid("c1b6694f-ff09-44a9-b03c-77900a0a1d17");
            private static Guid _adapter1 = new Guid("29038f61-3839-4626-91fd-086879011a05");
            private readonly IntPtr _factory;

            public Dxgi()
            {
                if (CreateDXGIFactory1(ref _factory1, out _factory) < 0)
                    throw new AdapterMissingException("DXGI does not answer");
            }

            public void Dispose()
            {
                Let(_factory);
            }

            public List<Adapter> All()
            {
                var enumerate = Method<EnumAdaptersMethod>(_factory, EnumAdapters1);
                var found = new List<Adapter>();
                IntPtr adapter;
                for (uint number = 0; enumerate(_factory, number, out adapter) >= 0; ++number)
                {
                    Adapter described = Described(adapter, (int)number);
                    if (described != null)
                        found.Add(described);
                }
                return found;
            }

            /// <summary>The locally unique id of the first GPU that DXGI names; null where it names none.</summary>
            public long? First(int preference)
            {
                IntPtr newer;
                if (Method<QueryMethod>(_factory, QueryInterface)(_factory, ref _factory6, out newer) < 0)
                    return null; // a Windows before 10 1803
                try
                {
                    var enumerate = Method<PreferenceMethod>(newer, ByPreference);
                    IntPtr adapter;
                    for (uint place = 0; enumerate(newer, place, preference, ref _adapter1, out adapter) >= 0; ++place)
                    {
                        Adapter described = Described(adapter, 0);
                        if (described != null && !described.Software)
                            return described.Luid;
                    }
                    return null;
                }
                finally
                {
                    Let(newer);
                }
            }

            private static Adapter Described(IntPtr adapter, int number)
            {
                try
                {
                    Desc desc;
                    if (Method<DescMethod>(adapter, GetDesc1)(adapter, out desc) < 0)
                        return null;
                    const uint software = 2; // DXGI_ADAPTER_FLAG_SOFTWARE
                    return new Adapter { Number = number, Name = desc.Description, Vendor = desc.Vendor, Luid = desc.Luid,
                        Software = (desc.Flags & software) != 0 };
                }
                finally
                {
                    Let(adapter);
                }
            }

            private static void Let(IntPtr one)
            {
                if (one != IntPtr.Zero)
                    Method<ReleaseMethod>(one, Release)(one);
            }

            private static T Method<T>(IntPtr one, int place)
            {
                IntPtr table = Marshal.ReadIntPtr(one);
                return (T)(object)Marshal.GetDelegateForFunctionPointer(Marshal.ReadIntPtr(table, place * IntPtr.Size), typeof(T));
            }

            // DXGI_ADAPTER_DESC1
            [StructLayout(LayoutKind.Sequential, CharSet = CharSet.Unicode, Pack = 4)]
            private struct Desc
            {
                [MarshalAs(UnmanagedType.ByValTStr, SizeConst = 128)]
                public string Description;
                public uint Vendor, Device, Subsystem, Revision;
                public UIntPtr DedicatedVideo, DedicatedSystem, SharedSystem;
                public long Luid;
                public uint Flags, Padding;
            }

            [UnmanagedFunctionPointer(CallingConvention.StdCall)]
            private delegate int QueryMethod(IntPtr self, ref Guid id, out IntPtr made);

            [UnmanagedFunctionPointer(CallingConvention.StdCall)]
            private delegate uint ReleaseMethod(IntPtr self);

            [UnmanagedFunctionPointer(CallingConvention.StdCall)]
            private delegate int EnumAdaptersMethod(IntPtr self, uint number, out IntPtr adapter);

            [UnmanagedFunctionPointer(CallingConvention.StdCall)]
            private delegate int PreferenceMethod(IntPtr self, uint place, int preference, ref Guid id, out IntPtr adapter);

            [UnmanagedFunctionPointer(CallingConvention.StdCall)]
            private delegate int DescMethod(IntPtr self, out Desc desc);

            [DllImport("dxgi.dll")]
            private static extern int CreateDXGIFactory1(ref Guid id, out IntPtr made);
        }
    }
}

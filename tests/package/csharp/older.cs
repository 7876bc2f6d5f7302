// Types of .NET 5 to 8 that the loader and the compiler use, for .NET Core 3.1: the newest .NET for Windows that the tests have.
#nullable enable
using System.ComponentModel;

namespace System.Runtime.CompilerServices
{
    [EditorBrowsable(EditorBrowsableState.Never)]
    internal static class IsExternalInit;
}

namespace System
{
    internal readonly struct Half
    {
        private readonly ushort _bits;

        private Half(ushort bits) => _bits = bits;

        // For the sample's values: 0, or 2^-14 and more.
        public static explicit operator Half(float real)
        {
            uint rest = (uint)BitConverter.SingleToInt32Bits(real) - (112u << 23);
            return new Half(real == 0 ? (ushort)0 : (ushort)((rest + 0xFFF + ((rest >> 13) & 1)) >> 13));
        }

        public static explicit operator double(Half half)
        {
            int exponent = (half._bits >> 10) & 31, fraction = half._bits & 1023;
            double sign = (half._bits & 0x8000) != 0 ? -1 : 1;
            if (exponent == 31)
                return fraction != 0 ? double.NaN : sign * double.PositiveInfinity;
            return sign * (exponent != 0 ? (1024 + fraction) * Math.Pow(2, exponent - 25) : fraction * Math.Pow(2, -24));
        }
    }
}

// Runs the packaged model once: dotnet run -- [FOLDER] [dml|cpu|dml-or-cpu] [adapter] [DIM=SIZE ...]. Replace Example() by your own
// data. Sizes choose among the buckets of a package that has some.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using Dmlprep;

internal static class Sample
{
    private static ushort Half(double real) // for values of Example(): 0, or 2^-14 and more
    {
        if (real == 0)
            return 0;
        uint bits = BitConverter.ToUInt32(BitConverter.GetBytes((float)real), 0);
        uint rest = bits - (112u << 23);
        return (ushort)((rest + 0xFFF + ((rest >> 13) & 1)) >> 13);
    }

    private static double FromHalf(ushort bits)
    {
        int exponent = (bits >> 10) & 31, fraction = bits & 1023;
        double sign = (bits & 0x8000) != 0 ? -1 : 1;
        if (exponent == 31)
            return fraction != 0 ? double.NaN : sign * double.PositiveInfinity;
        return sign * (exponent != 0 ? (1024 + fraction) * Math.Pow(2, exponent - 25) : fraction * Math.Pow(2, -24));
    }

    // The same numbers in the sample of each language, in the range that the contract knows. A free dimension gets size 1.
    private static Tensor Example(TensorInfo one)
    {
        long[] shape = one.Shape.Select(size => size < 0 ? 1 : size).ToArray();
        long count = shape.Aggregate(1L, (all, size) => all * size);
        double low = one.Range == null ? 0 : one.Range[0], high = one.Range == null ? 1 : one.Range[1];
        Func<long, double> real = i => low + (double)(i * 37 % 101) / 101 * (high - low);
        Func<long, long> whole = i => one.Range == null
            ? i % 2
            : (long)low + (unchecked((uint)i * 2654435761u) >> 24) % ((long)(high - low) + 1); // Knuth's multiplicative hash
        return new Tensor(Filled(one.Type, count, real, whole), shape);
    }

    private static Array Filled(string type, long count, Func<long, double> real, Func<long, long> whole)
    {
        switch (type)
        {
            case "float16": return Made(count, i => Half(real(i)));
            case "float32": return Made(count, i => (float)real(i));
            case "float64": return Made(count, real);
            case "int8": return Made(count, i => (sbyte)whole(i));
            case "int16": return Made(count, i => (short)whole(i));
            case "int32": return Made(count, i => (int)whole(i));
            case "int64": return Made(count, whole);
            case "uint8": return Made(count, i => (byte)whole(i));
            case "uint16": return Made(count, i => (ushort)whole(i));
            case "uint32": return Made(count, i => (uint)whole(i));
            case "uint64": return Made(count, i => (ulong)whole(i));
            default: return Made(count, i => whole(i) != 0);
        }
    }

    private static T[] Made<T>(long count, Func<long, T> element)
    {
        var found = new T[count];
        for (long i = 0; i < count; ++i)
            found[i] = element(i);
        return found;
    }

    private static int Main(string[] given)
    {
        string[] words = given.Where(word => !word.Contains("=")).ToArray();
        string folder = words.Length > 0 ? words[0] : AppContext.BaseDirectory;
        string device = words.Length > 1 ? words[1] : "dml";
        var options = new Options
        {
            Device = device == "cpu" ? Device.Cpu : device == "dml-or-cpu" ? Device.DirectMLOrCpu : Device.DirectML,
            Adapter = words.Length > 2 ? words[2] : "0",
            Sizes = given.Where(word => word.Contains("=")).Select(word => word.Split('=')).ToDictionary(pair => pair[0], pair => long.Parse(pair[1])),
        };
        try
        {
            using (var model = new Model(folder, options))
            {
                Console.WriteLine("device " + (model.Device == Device.Cpu ? "cpu" : "dml"));
                string padding = string.Concat(model.Padding.Select(pair => " " + pair.Key + "=" + pair.Value));
                if (model.Bucket != "")
                    Console.WriteLine("bucket " + model.Bucket + ", padding" + (padding == "" ? " none" : padding));
                if (model.Notice != "")
                    Console.WriteLine(model.Notice);
                Dictionary<string, Tensor> outputs = model.Run(model.Inputs.ToDictionary(one => one.Name, Example));
                foreach (TensorInfo one in model.Outputs)
                {
                    Tensor tensor = outputs[one.Name];
                    IEnumerable<string> first = tensor.Data.Cast<object>().Take(8).Select(value =>
                        (one.Type == "float16" ? FromHalf((ushort)value) : Convert.ToDouble(value)).ToString("F6", CultureInfo.InvariantCulture));
                    Console.WriteLine(one.Name + " " + string.Join("x", tensor.Shape) + " " + string.Join(" ", first));
                }
            }
        }
        catch (ModelException error)
        {
            Console.Error.WriteLine(error.GetType().Name + ": " + error.Message);
            return 1;
        }
        return 0;
    }
}

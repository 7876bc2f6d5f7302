// Runs the packaged model once: dotnet run -- [FOLDER] [dml|cpu|dml-or-cpu] [ADAPTER] [DIMENSION=SIZE ...]
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using Dmlprep;

string[] words = [.. args.Where(word => !word.Contains('='))];
var options = new Options
{
    Device = words.ElementAtOrDefault(1) switch { "cpu" => Device.Cpu, "dml-or-cpu" => Device.DirectMLOrCpu, _ => Device.DirectML },
    Adapter = words.ElementAtOrDefault(2) ?? "0",
    Sizes = args.Where(word => word.Contains('=')).Select(word => word.Split('=')).ToDictionary(pair => pair[0], pair => long.Parse(pair[1])),
};
try
{
    using var model = new Model(words.ElementAtOrDefault(0) ?? AppContext.BaseDirectory, options);
    Console.WriteLine($"device {model.Device}: {model.Evidence}");
    if (model.Notice != "")
        Console.WriteLine(model.Notice);
    if (model.Bucket != "")
        Console.WriteLine($"bucket {model.Bucket}, padding {string.Join(" ", model.Padding.Select(one => $"{one.Key}={one.Value}").DefaultIfEmpty("none"))}");
    IReadOnlyDictionary<string, Tensor> outputs = await model.RunAsync(model.Inputs.ToDictionary(one => one.Name, Example.Of));
    double[][] expected = options.Sizes.Count == 0 ? Example.Expected : [];
    var different = new List<string>();
    foreach ((TensorInfo one, int place) in model.Outputs.Select((one, place) => (one, place)))
    {
        double[] first = Example.First(outputs[one.Name], 8);
        Console.WriteLine($"{one.Name} {string.Join("x", outputs[one.Name].Shape)} {Example.Printed(first)}");
        if (expected.ElementAtOrDefault(place) is not [double allowed, .. double[] wanted])
            continue;
        Console.WriteLine($"  expected {Example.Printed(wanted)}");
        if (allowed >= 0 && !wanted.Zip(first, (a, b) => Math.Abs(a - b) <= allowed).All(near => near))
            different.Add(one.Name);
    }
    if (different.Count > 0)
        Console.Error.WriteLine($"NOT as expected: {string.Join(", ", different)}");
    else
        Console.WriteLine(expected.Any(row => row is [>= 0, ..]) ? "as expected" : "not compared");
    return different.Count > 0 ? 1 : 0;
}
catch (ModelException error)
{
    Console.Error.WriteLine($"{error.GetType().Name}: {error.Message}");
    return 1;
}

/// <summary>Synthetic inputs, equal in all languages. Replace them by your own data.</summary>
internal static class Example
{
    /// <summary>An input in the range that the contract knows. A free dimension gets size 1.</summary>
    public static Tensor Of(TensorInfo one)
    {
        long[] shape = [.. one.Shape.Select(size => size < 0 ? 1 : size)];
        (double low, double high) = one.Range ?? (0, 1);
        double Real(int i) => low + (double)((long)i * 37 % 101) / 101 * (high - low);
        long Whole(int i) => one.Range is null
            ? i % 2
            : (long)low + (unchecked((uint)i * 2654435761u) >> 24) % ((long)(high - low) + 1); // Knuth's multiplicative hash
        Tensor Made<T>(Func<int, T> element) where T : unmanaged =>
            Tensor.From(Enumerable.Range(0, (int)shape.Aggregate(1L, (all, size) => all * size)).Select(element).ToArray(), shape);
        return one.Type switch
        {
            "float16" => Made(i => (Half)(float)Real(i)),
            "float32" => Made(i => (float)Real(i)),
            "float64" => Made(Real),
            "int8" => Made(i => (sbyte)Whole(i)),
            "int16" => Made(i => (short)Whole(i)),
            "int32" => Made(i => (int)Whole(i)),
            "int64" => Made(Whole),
            "uint8" => Made(i => (byte)Whole(i)),
            "uint16" => Made(i => (ushort)Whole(i)),
            "uint32" => Made(i => (uint)Whole(i)),
            "uint64" => Made(i => (ulong)Whole(i)),
            _ => Made(i => Whole(i) != 0),
        };
    }

    /// <summary>Each output of the model on the CPU: the difference allowed (-1: not compared), then the first numbers.</summary>
    public static readonly double[][] Expected = [@EXPECTED@];

    /// <summary>The first numbers of a tensor.</summary>
    public static double[] First(Tensor tensor, int count) => [.. tensor.Values.Cast<object>().Take(count).Select(value =>
        value is Half half ? (double)half : Convert.ToDouble(value, CultureInfo.InvariantCulture))];

    /// <summary>Numbers as text.</summary>
    public static string Printed(IEnumerable<double> numbers) =>
        string.Join(" ", numbers.Select(value => value.ToString("F6", CultureInfo.InvariantCulture)));
}

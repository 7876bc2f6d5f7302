// What the loader promises of buckets: buckets FOLDER GRID, with sizes a line in GRID. Prints what each of these sizes takes,
// then "good". tests/package/python/buckets.py does the same.
#nullable enable
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Dmlprep;
#if STAND_IN
using Microsoft.ML.OnnxRuntime;
#endif

Dictionary<string, long> small = SizesOf("height=16 width=16"), large = SizesOf("height=24 width=24");
try
{
    using (var model = new Model(args[0], new Options { WarmUp = false }))
        Choices(model, args[1]);
    Taking(args[0]);
    Damaged(args[0]);
#if STAND_IN
    Sessions(args[0]);
#endif
    Console.WriteLine("good");
    return 0;
}
catch (Exception error)
{
    Console.WriteLine(error);
    return 1;
}

static void Demand(bool holds, string what)
{
    if (!holds)
        throw new InvalidOperationException($"WRONG: {what}");
}

static void Refused<T>(Action work, string word) where T : ModelException
{
    try
    {
        work();
    }
    catch (T error)
    {
        Demand(error.Message.Contains(word), error.Message + " does not say " + word);
        return;
    }
    throw new InvalidOperationException($"WRONG: not refused: {word}");
}

static Dictionary<string, long> SizesOf(string line) => line.Split(' ', StringSplitOptions.RemoveEmptyEntries)
    .Select(word => word.Split('=')).ToDictionary(pair => pair[0], pair => long.Parse(pair[1]));

static Dictionary<string, Tensor> Feeds(Model model) => model.Inputs.ToDictionary(one => one.Name,
    one => Tensor.From(Enumerable.Repeat(0.5f, (int)one.Shape.Aggregate(1L, (all, size) => all * size)).ToArray(), [.. one.Shape]));

static void Choices(Model model, string grid)
{
    foreach (string line in File.ReadAllLines(grid))
    {
        try
        {
            Choice choice = model.Choose(SizesOf(line));
            Console.WriteLine(string.Join(" ", choice.Padding.Select(one => $"{one.Key}={one.Value}").Prepend(choice.Bucket)));
        }
        catch (BadInputException error)
        {
            Console.WriteLine(error.Message);
        }
    }
}

void Taking(string folder)
{
    using (var model = new Model(folder, new Options { Sizes = large }))
    {
        Demand(model.Bucket == "height24-width24" && model.Padding.Count == 0, "the bucket of these sizes");
        IReadOnlyDictionary<string, Tensor> fed = Feeds(model), first = model.Run(fed);
        model.Take(SizesOf("height=10 width=16"));
        Demand(model.Bucket == "height16-width16" && model.Padding.Single().Value == 6, "the bucket with room");
        model.Run(Feeds(model));
        Refused<BadInputException>(() => model.Run(fed), "the bucket height16-width16 has fixed sizes: pad the input");
        Refused<BadInputException>(() => model.Take(SizesOf("height=25 width=1")), "no bucket has room for height=25, width=1");
        Demand(model.Bucket == "height16-width16", "another bucket after an error");
        model.Run(Feeds(model));
        model.Take(large);
        IReadOnlyDictionary<string, Tensor> again = model.Run(fed);
        Demand(first.All(one => one.Value.Values.Cast<object>().SequenceEqual(again[one.Key].Values.Cast<object>())), "other numbers");
        model.Close();
        Refused<ModelException>(() => model.Take(small), "closed");
        model.Reopen();
        Demand(model.Bucket == "height24-width24", "the bucket after Reopen");
    }
    using (var model = new Model(folder))
        Demand(model.Bucket == "height16-width16", "the first bucket");
    Refused<BadInputException>(() => new Model(folder, new Options { Sizes = SizesOf("depth=1") }), "no free dimension 'depth'; there are: height, width");
}

static void Damaged(string folder)
{
    foreach (string path in Directory.GetFiles(folder, "height*.onnx").Append(Path.Combine(folder, "buckets.data")))
    {
        byte[] raw = File.ReadAllBytes(path), changed = [.. raw];
        changed[^1] ^= 1;
        File.WriteAllBytes(path, changed);
        try
        {
            Refused<PackageDamagedException>(() => new Model(folder), Path.GetFileName(path) + " was changed");
        }
        finally
        {
            File.WriteAllBytes(path, raw);
        }
    }
    using (var model = new Model(folder))
    {
        string other = Path.Combine(folder, "height24-width16.onnx");
        File.Move(other, other + ".away");
        try
        {
            Refused<PackageDamagedException>(() => model.Take(SizesOf("height=24 width=16")), "height24-width16.onnx is missing");
            Demand(model.Bucket == "height16-width16", "another bucket after a missing file");
            model.Run(Feeds(model));
        }
        finally
        {
            File.Move(other + ".away", other);
        }
    }
}

#if STAND_IN
// A session is made when its bucket is first taken; the bucket of before stays where that fails.
void Sessions(string folder)
{
    StandIn.Opened.Clear();
    var model = new Model(folder);
    model.Take(large);
    model.Take(small);
    model.Take(large);
    Demand(StandIn.Opened.Count == 2, StandIn.Opened.Count + " sessions");
    Demand(Path.GetFileName((string)StandIn.Source) == "height24-width24.onnx", StandIn.Source + " was loaded");
    model.Reopen();
    Demand(StandIn.Opened.Count == 3, "Reopen makes one session");
    StandIn.OpenError = "8007000E Not enough memory resources";
    Refused<OutOfDeviceMemoryException>(() => model.Take(small), "smaller inputs");
    StandIn.OpenError = "";
    Demand(model.Bucket == "height24-width24", "the bucket of before");
    model.Run(Feeds(model));
    StandIn.RunError = "887A0006 The GPU will not respond to more commands";
    Refused<DeviceRemovedException>(() => model.Take(small), "call Reopen()");
    StandIn.RunError = "";
    Refused<DeviceRemovedException>(() => model.Run(Feeds(model)), "887A0006");
    model.Reopen();
    model.Take(small);
    model.Run(Feeds(model));
}
#endif

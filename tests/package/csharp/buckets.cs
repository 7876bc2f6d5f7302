// What the loader promises of buckets: buckets.exe FOLDER GRID, with sizes a line in GRID. Prints what each of these sizes takes,
// then "good". tests/package/python/buckets.py does the same.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Dmlprep;
#if STAND_IN
using Microsoft.ML.OnnxRuntime;
#endif

internal static class BucketChecks
{
    private static readonly Dictionary<string, long> Small = SizesOf("height=16 width=16"), Large = SizesOf("height=24 width=24");

    private static void Demand(bool holds, string what)
    {
        if (!holds)
            throw new Exception("WRONG: " + what);
    }

    private static void Refused<T>(Action work, string word) where T : ModelException
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
        throw new Exception("WRONG: not refused: " + word);
    }

    private static Dictionary<string, long> SizesOf(string line)
    {
        return line.Split(new[] { ' ' }, StringSplitOptions.RemoveEmptyEntries).Select(word => word.Split('='))
            .ToDictionary(pair => pair[0], pair => long.Parse(pair[1]));
    }

    private static Dictionary<string, Tensor> Feeds(Model model)
    {
        return model.Inputs.ToDictionary(one => one.Name,
            one => new Tensor(Enumerable.Repeat(0.5f, (int)one.Shape.Aggregate(1L, (all, size) => all * size)).ToArray(), one.Shape));
    }

    private static void Choices(Model model, string grid)
    {
        foreach (string line in File.ReadAllLines(grid))
        {
            try
            {
                Choice choice = model.Choose(SizesOf(line));
                Console.WriteLine(string.Join(" ", new[] { choice.Bucket }.Concat(choice.Padding.Select(one => one.Key + "=" + one.Value))));
            }
            catch (BadInputException error)
            {
                Console.WriteLine(error.Message);
            }
        }
    }

    private static void Taking(string folder)
    {
        using (var model = new Model(folder, new Options { Sizes = Large }))
        {
            Demand(model.Bucket == "height24-width24" && model.Padding.Count == 0, "the bucket of these sizes");
            Dictionary<string, Tensor> fed = Feeds(model), first = model.Run(fed);
            model.Take(SizesOf("height=10 width=16"));
            Demand(model.Bucket == "height16-width16" && model.Padding.Single().Value == 6, "the bucket with room");
            model.Run(Feeds(model));
            Refused<BadInputException>(() => model.Run(fed), "the bucket height16-width16 has fixed sizes: pad the input");
            Refused<BadInputException>(() => model.Take(SizesOf("height=25 width=1")), "no bucket has room for height=25, width=1");
            Demand(model.Bucket == "height16-width16", "another bucket after an error");
            model.Run(Feeds(model));
            model.Take(Large);
            Dictionary<string, Tensor> again = model.Run(fed);
            Demand(first.All(one => one.Value.Data.Cast<object>().SequenceEqual(again[one.Key].Data.Cast<object>())), "other numbers");
            model.Close();
            Refused<ModelException>(() => model.Take(Small), "closed");
            model.Reopen();
            Demand(model.Bucket == "height24-width24", "the bucket after Reopen");
        }
        using (var model = new Model(folder))
            Demand(model.Bucket == "height16-width16", "the first bucket");
        Refused<BadInputException>(() => new Model(folder, new Options { Sizes = SizesOf("depth=1") }), "no free dimension 'depth'");
    }

    private static void Damaged(string folder)
    {
        foreach (string path in Directory.GetFiles(folder, "height*.onnx").Concat(new[] { Path.Combine(folder, "buckets.data") }))
        {
            byte[] raw = File.ReadAllBytes(path), changed = (byte[])raw.Clone();
            changed[changed.Length - 1] ^= 1;
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
    private static void Sessions(string folder)
    {
        StandIn.Opened.Clear();
        var model = new Model(folder);
        model.Take(Large);
        model.Take(Small);
        model.Take(Large);
        Demand(StandIn.Opened.Count == 2, StandIn.Opened.Count + " sessions");
        Demand(Path.GetFileName((string)StandIn.Source) == "height24-width24.onnx", StandIn.Source + " was loaded");
        model.Reopen();
        Demand(StandIn.Opened.Count == 3, "Reopen makes one session");
        StandIn.OpenError = "8007000E Not enough memory resources";
        Refused<OutOfDeviceMemoryException>(() => model.Take(Small), "smaller inputs");
        StandIn.OpenError = "";
        Demand(model.Bucket == "height24-width24", "the bucket of before");
        model.Run(Feeds(model));
        StandIn.RunError = "887A0006 The GPU will not respond to more commands";
        Refused<DeviceRemovedException>(() => model.Take(Small), "call Reopen()");
        StandIn.RunError = "";
        Refused<DeviceRemovedException>(() => model.Run(Feeds(model)), "887A0006");
        model.Reopen();
        model.Take(Small);
        model.Run(Feeds(model));
    }
#endif

    private static int Main(string[] words)
    {
        try
        {
            using (var model = new Model(words[0], new Options { WarmUp = false }))
                Choices(model, words[1]);
            Taking(words[0]);
            Damaged(words[0]);
#if STAND_IN
            Sessions(words[0]);
#endif
            Console.WriteLine("good");
            return 0;
        }
        catch (Exception error)
        {
            Console.WriteLine(error);
            return 1;
        }
    }
}

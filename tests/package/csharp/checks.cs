// What the loader for C# promises: checks.exe FOLDER [real]. "real": ONNX Runtime itself, in place of the stand-in. Prints "good" last.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Threading;
using Dmlprep;
#if STAND_IN
using Microsoft.ML.OnnxRuntime;
#endif

internal static class Checks
{
    private static void Demand(bool holds, string what)
    {
        if (!holds)
            throw new Exception("WRONG: " + what);
    }

    private static T Refused<T>(Action work, string word) where T : ModelException
    {
        try
        {
            work();
        }
        catch (T error)
        {
            Demand(error.Message.Contains(word), error.Message + " does not say " + word);
            return error;
        }
        throw new Exception("WRONG: not refused: " + word);
    }

    private static Dictionary<string, Tensor> Feeds(Model model, int seed)
    {
        return model.Inputs.ToDictionary(one => one.Name, one =>
        {
            int count = (int)one.Shape.Aggregate(1L, (all, size) => all * size);
            Array data = one.Type == "uint8"
                ? (Array)Enumerable.Range(0, count).Select(i => (byte)((unchecked((uint)i * 2654435761u) >> 24) + seed * 91)).ToArray()
                : Enumerable.Range(0, count).Select(i => (1 + seed) * (float)(i * 37 % 101) / 101).ToArray();
            return new Tensor(data, one.Shape);
        });
    }

    private static bool Same(Dictionary<string, Tensor> one, Dictionary<string, Tensor> other)
    {
        return one.All(pair => pair.Value.Data.Cast<object>().SequenceEqual(other[pair.Key].Data.Cast<object>())
            && pair.Value.Shape.SequenceEqual(other[pair.Key].Shape));
    }

    private static void Threads(string folder)
    {
        var models = new[] { new Model(folder), new Model(folder) };
        var expected = new[] { models[0].Run(Feeds(models[0], 0)), models[0].Run(Feeds(models[0], 1)) };
        Demand(!Same(expected[0], expected[1]), "the two feeds give the same");
        int wrong = 0;
        Thread[] threads = Enumerable.Range(0, 4).Select(number => new Thread(() =>
        {
            for (int round = 0; round < 3; ++round)
                if (!Same(models[number / 2].Run(Feeds(models[0], number % 2)), expected[number % 2]))
                    Interlocked.Increment(ref wrong);
        })).ToArray();
        foreach (Thread thread in threads)
            thread.Start();
        foreach (Thread thread in threads)
            thread.Join();
        Demand(wrong == 0, "threads got other numbers");
        models[0].Close();
        Refused<ModelException>(() => models[0].Run(Feeds(models[0], 0)), "closed");
        models[0].Reopen(Device.Cpu);
        models[0].Run(Feeds(models[0], 0));
        Demand(models[0].Device == Device.Cpu, "the CPU");
    }

    private static void BadInputs(string folder)
    {
        using (var model = new Model(folder))
        {
            string name = model.Inputs[0].Name;
            Tensor whole = Feeds(model, 0)[name];
            Action<Tensor, string> refused = (tensor, word) =>
                Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor> { { name, tensor } }), word);
            Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor>()), "is missing");
            refused(new Tensor(whole.Data, whole.Shape.Skip(1).ToArray()), "the model needs [1, ");
            refused(new Tensor(new double[whole.Data.Length], whole.Shape), "[] for ");
            Array shorter = Array.CreateInstance(whole.Data.GetType().GetElementType(), whole.Data.Length - 1);
            refused(new Tensor(shorter, whole.Shape), "elements");
            Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor> { { name, whole }, { "more", whole } }), "no input 'more'");
        }
        Refused<BadInputException>(() => new Model(folder, new Options { Sizes = { { "nothing", 1 } } }), "no free dimension 'nothing'");
    }

    // A byte that was changed in any file, and a file that is not there.
    private static void Damaged(string folder)
    {
        foreach (string path in Directory.GetFiles(folder).Where(name => !name.EndsWith(".exe") && !name.EndsWith(".dll")))
        {
            string name = Path.GetFileName(path);
            byte[] raw = File.ReadAllBytes(path);
            foreach (int place in new[] { 0, raw.Length / 2, raw.Length - 1 })
            {
                byte[] changed = (byte[])raw.Clone();
                changed[place] ^= 1;
                File.WriteAllBytes(path, changed);
                try
                {
                    string file = Refused<PackageDamagedException>(() => new Model(folder), ": repair the installation").File;
                    Demand(file == (name == "model.json.sha256" ? "model.json" : name), name + " was changed, and " + file + " is named");
                }
                finally
                {
                    File.WriteAllBytes(path, raw);
                }
            }
        }
        foreach (string name in new[] { "model.json", "model.json.sha256", "model.onnx" })
        {
            File.Move(Path.Combine(folder, name), Path.Combine(folder, "away"));
            Refused<PackageDamagedException>(() => new Model(folder), name + " is missing");
            File.Move(Path.Combine(folder, "away"), Path.Combine(folder, name));
        }
    }

    private static void FromMemory(string folder)
    {
        Func<string, byte[]> read = name => File.Exists(Path.Combine(folder, name)) ? File.ReadAllBytes(Path.Combine(folder, name)) : null;
        using (var model = new Model("nowhere", new Options { Read = read }))
            model.Run(Feeds(model, 0));
        Refused<PackageDamagedException>(() => new Model("nowhere", new Options { Read = name =>
        {
            byte[] raw = read(name);
            if (name == "model.onnx")
                raw[raw.Length / 2] ^= 1;
            return raw;
        } }), "model.onnx was changed");
        Refused<PackageDamagedException>(() => new Model("nowhere", new Options { Read = name => null }), "model.json is missing");
    }

    private static void AdapterNames()
    {
        var there = new List<Adapter>
        {
            new Adapter { Number = 0, Name = "Intel UHD", Vendor = 0x8086, Luid = 1 },
            new Adapter { Number = 1, Name = "GeForce RTX", Vendor = 0x10DE, Luid = 2 },
            new Adapter { Number = 2, Name = "Microsoft Basic Render Driver", Vendor = 0x1414, Luid = 3, Software = true },
        };
        Demand(Adapters.Choose("nvidia", there, null) == 1, "by vendor");
        Demand(Adapters.Choose("uhd", there, null) == 0, "by name");
        Demand(Adapters.Choose("high_performance", there, 2) == 1, "by preference");
        Refused<AdapterMissingException>(() => Adapters.Choose("AMD", there, null), "0 adapters match 'AMD'; there are: 0 Intel UHD, 1 GeForce");
        Refused<AdapterMissingException>(() => Adapters.Choose("r", there, null), "2 adapters match 'r'");
        Refused<AdapterMissingException>(() => Adapters.Choose("minimum_power", there, 3), "names no GPU");
    }

#if STAND_IN
    private static void Opened(string folder)
    {
        StandIn.Opened.Clear();
        StandIn.Runs = 0;
        using (var model = new Model(folder, new Options { Adapter = "1", DisableMetacommands = true }))
        {
            SessionOptions settings = StandIn.Opened.Single();
            Demand(!settings.EnableMemoryPattern, "memory pattern is on");
            Demand(settings.ExecutionMode == ExecutionMode.ORT_SEQUENTIAL, "execution is parallel");
            Demand(settings.Providers["DML"]["device_id"] == "1", "adapter");
            Demand(settings.Providers["DML"]["disable_metacommands"] == "true", "metacommands");
            Demand(((byte[])StandIn.Source).SequenceEqual(File.ReadAllBytes(Path.Combine(folder, "model.onnx"))), "other bytes than were checked");
            Demand(StandIn.Runs == 1, "no first run");
        }
        new Model(folder, new Options { WarmUp = false }).Dispose();
        Demand(StandIn.Runs == 1, "a first run that was not asked for");
        Demand(StandIn.AtOnce == 1, StandIn.AtOnce + " runs at once");
    }

    private static void Removed(string folder)
    {
        foreach (string code in new[] { "887A0005", "887a0006", "887A0007", "887A0020" })
        {
            var model = new Model(folder);
            StandIn.RunError = "Non-zero status code: DmlCommandRecorder.cpp " + code + " The GPU device instance has been suspended.";
            Refused<DeviceRemovedException>(() => model.Run(Feeds(model, 0)), "call Reopen()");
            StandIn.RunError = "";
            Refused<DeviceRemovedException>(() => model.Run(Feeds(model, 0)), "Reopen(Device.Cpu)"); // the session is gone
            model.Reopen();
            model.Run(Feeds(model, 0));
            foreach (string text in new[] { "8007000E Not enough memory resources", "bad allocation", "Failed to allocate memory" })
            {
                StandIn.RunError = text;
                Refused<OutOfDeviceMemoryException>(() => model.Run(Feeds(model, 0)), "smaller inputs");
                StandIn.RunError = "";
                Refused<OutOfDeviceMemoryException>(() => model.Run(Feeds(model, 0)), "smaller inputs");
                model.Reopen(Device.Cpu);
                model.Run(Feeds(model, 0));
                model.Reopen();
            }
        }
    }

    private static void FallBack(string folder)
    {
        StandIn.OpenError = "887A0004 The specified device interface or feature level is not supported";
        Refused<AdapterMissingException>(() => new Model(folder), "887A0004");
        var model = new Model(folder, new Options { Device = Device.DirectMLOrCpu });
        Demand(model.Device == Device.Cpu && model.Notice.Contains("887A0004"), "a fall-back that says why");
        StandIn.OpenError = "";
        model.Reopen();
        Demand(model.Device == Device.DirectML && model.Notice == "", "back on DirectML");
        StandIn.Version = "1.2.0";
        Refused<RuntimeMissingException>(() => new Model(folder, new Options { Device = Device.Cpu }), "1.2.0, older than 1.");
        StandIn.Version = "1.24.4";
    }
#endif

    private static int Main(string[] words)
    {
        try
        {
            AdapterNames();
            Threads(words[0]);
            BadInputs(words[0]);
            Damaged(words[0]);
            FromMemory(words[0]);
#if STAND_IN
            Opened(words[0]);
            Removed(words[0]);
            FallBack(words[0]);
#else
            Refused<AdapterMissingException>(() => new Model(words[0], new Options { Adapter = "99" }), "887A0002");
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

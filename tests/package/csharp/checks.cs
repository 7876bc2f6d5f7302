// What the loader for C# promises: checks FOLDER. Without STAND_IN it runs on the real DirectML; with it, the package has an
// original. Prints "good" last.
#nullable enable
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Dmlprep;
#if STAND_IN
using Microsoft.ML.OnnxRuntime;
#endif

var warnings = new Warnings();
Trace.Listeners.Clear();
Trace.Listeners.Add(warnings);
string app = args[0];
try
{
    Tensors();
    AdapterNames();
    await Threads();
    await Cancelled();
    BadInputs();
    Damaged();
    FromMemory();
    FallBack();
    NoVendorsProvider();
#if STAND_IN
    Opened();
    Removed();
    Versions();
    VendorsProviders();
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

static T Refused<T>(Func<object?> work, string word) where T : Exception
{
    try
    {
        work();
    }
    catch (T error)
    {
        Demand(error.Message.Contains(word, StringComparison.Ordinal), $"{error.Message} does not say {word}");
        return error;
    }
    throw new InvalidOperationException($"WRONG: not refused: {word}");
}

static Dictionary<string, Tensor> Feeds(Model model, int seed) => model.Inputs.ToDictionary(one => one.Name, one =>
{
    int[] all = [.. Enumerable.Range(0, (int)one.Shape.Aggregate(1L, (all, size) => all * size))];
    return one.Type == "uint8"
        ? Tensor.From(all.Select(i => (byte)((unchecked((uint)i * 2654435761u) >> 24) + seed * 91)).ToArray(), [.. one.Shape])
        : Tensor.From(all.Select(i => (1 + seed) * (float)(i * 37 % 101) / 101).ToArray(), [.. one.Shape]);
});

static bool Same(IReadOnlyDictionary<string, Tensor> one, IReadOnlyDictionary<string, Tensor> other) => one.All(pair =>
    pair.Value.Values.Cast<object>().SequenceEqual(other[pair.Key].Values.Cast<object>()) && pair.Value.Shape.SequenceEqual(other[pair.Key].Shape));

void Tensors()
{
    float[] values = [1, 2, 3, 4, 5, 6];
    Tensor wrapped = Tensor.From(values, 2, 3), copied = Tensor.From<float>(values.AsSpan(), 2, 3);
    values[0] = 9;
    Demand(wrapped.As<float>()[0] == 9 && copied.As<float>()[0] == 1, "an array is not copied, a span is");
    Demand(wrapped.AsMemory<float>().Length == 6 && wrapped.Shape.SequenceEqual([2, 3]), "the memory of a tensor");
    Refused<BadInputException>(() => Tensor.From(values, 2, 2), "the shape [2, 2] needs 4 elements, but there are 6");
    Refused<BadInputException>(() => Tensor.From(values, -2, -3), "the shape [-2, -3] has a negative size");
    Refused<InvalidCastException>(() => wrapped.AsMemory<long>(), "elements of type Single, not Int64");
}

async Task Threads()
{
    await using Model first = await Model.LoadAsync(app), second = await Model.LoadAsync(app);
    Model[] models = [first, second];
    Demand(first is { Asked: Device.DirectML, Device: "dml", Notice: "" }, $"device {first.Device}");
    Demand(first.Evidence.StartsWith("ONNX Runtime keeps ", StringComparison.Ordinal), first.Evidence);
    IReadOnlyDictionary<string, Tensor>[] expected = [first.Run(Feeds(first, 0)), first.Run(Feeds(first, 1))];
    Demand(!Same(expected[0], expected[1]), "the two feeds give the same");
    bool[] same = await Task.WhenAll(Enumerable.Range(0, 12).Select(async number =>
    {
        Model model = models[number / 6];
        IReadOnlyDictionary<string, Tensor> outputs = number % 3 == 0
            ? await model.RunAsync(Feeds(first, number % 2))
            : await Task.Run(() => model.Run(Feeds(first, number % 2)));
        return Same(outputs, expected[number % 2]);
    }));
    Demand(same.All(one => one), "threads got other numbers");
    first.Close();
    Demand(first.Device == "" && first.Evidence == "", "a closed model has no device");
    Refused<ModelException>(() => first.Run(Feeds(first, 0)), "closed");
    first.Reopen(Device.Cpu);
    first.Run(Feeds(first, 0));
    Demand(first is { Asked: Device.Cpu, Device: "cpu", Notice: "" }, "the CPU");
}

async Task Cancelled()
{
    await using var model = new Model(app);
    IReadOnlyDictionary<string, Tensor> expected = model.Run(Feeds(model, 1));
    using var stop = new CancellationTokenSource();
#if STAND_IN
    StandIn.Go.Reset();
    Task run = model.RunAsync(Feeds(model, 0), stop.Token), waiting = model.RunAsync(Feeds(model, 0), stop.Token);
    stop.Cancel();
#else
    stop.Cancel();
    Task run = model.RunAsync(Feeds(model, 0), stop.Token), waiting = run;
#endif
    foreach (Task one in new[] { run, waiting })
    {
        try
        {
            await one;
            Demand(false, "not cancelled");
        }
        catch (OperationCanceledException)
        {
        }
    }
#if STAND_IN
    StandIn.Go.Set();
#endif
    Demand(Same(await model.RunAsync(Feeds(model, 1)), expected), "a run after a cancelled one");
}

void BadInputs()
{
    using var model = new Model(app);
    string name = model.Inputs[0].Name;
    Tensor whole = Feeds(model, 0)[name];
    Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor>()), "is missing");
    Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor> { [model.Inputs[0].Name] = null! }), "is missing");
    Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor> { [name] = new(whole.Values, [whole.Values.Length]) }),
        "the model needs [1, ");
    Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor>
    {
        [name] = Tensor.From(new double[whole.Values.Length], [.. whole.Shape]),
    }), $"has elements of type Double, but the model needs {whole.Values.GetType().GetElementType()!.Name}");
    Refused<BadInputException>(() => model.Run(new Dictionary<string, Tensor> { [name] = whole, ["more"] = whole }), "no input 'more'");
    var sizes = new Dictionary<string, long> { ["nothing"] = 1 };
    Refused<BadInputException>(() => new Model(app, new Options { Sizes = sizes }), "no free dimension 'nothing'; there are: ");
}

// Each file with a changed byte, and each needed file missing.
void Damaged()
{
    foreach (string path in Directory.GetFiles(app).Where(name => Path.GetExtension(name) is not (".exe" or ".dll")))
    {
        string name = Path.GetFileName(path);
        byte[] raw = File.ReadAllBytes(path);
        foreach (int place in new[] { 0, raw.Length / 2, raw.Length - 1 })
        {
            byte[] changed = [.. raw];
            changed[place] ^= 1;
            File.WriteAllBytes(path, changed);
            string file = Refused<PackageDamagedException>(() => new Model(app), ": repair the installation").File;
            File.WriteAllBytes(path, raw);
            Demand(file == (name == "model.json.sha256" ? "model.json" : name), $"{name} was changed, and {file} is named");
        }
    }
    foreach (string name in new[] { "model.json", "model.json.sha256", "model.onnx" })
    {
        File.Move(Path.Combine(app, name), Path.Combine(app, "away"));
        Refused<PackageDamagedException>(() => new Model(app), $"{name} is missing in {Path.GetFullPath(app)}: ");
        File.Move(Path.Combine(app, "away"), Path.Combine(app, name));
    }
}

void FromMemory()
{
    byte[]? Read(string name) => File.Exists(Path.Combine(app, name)) ? File.ReadAllBytes(Path.Combine(app, name)) : null;
    using (var model = new Model("nowhere", new Options { Read = Read }))
        model.Run(Feeds(model, 0));
    Refused<PackageDamagedException>(() => new Model("nowhere", new Options
    {
        Read = name =>
        {
            byte[]? raw = Read(name);
            if (name == "model.onnx")
                raw![raw.Length / 2] ^= 1;
            return raw;
        },
    }), "model.onnx was changed");
    Refused<PackageDamagedException>(() => new Model("nowhere", new Options { Read = _ => null }), "model.json is missing");
}

void AdapterNames()
{
    Adapter[] present =
    [
        new(0, "Intel UHD", 0x8086, 1, false),
        new(1, "GeForce RTX", 0x10DE, 2, false),
        new(2, "Microsoft Basic Render Driver", 0x1414, 3, true),
    ];
    Demand(Adapters.Choose("nvidia", present, null) == 1, "by vendor");
    Demand(Adapters.Choose("uhd", present, null) == 0, "by name");
    Demand(Adapters.Choose("high_performance", present, 2) == 1, "by preference");
    Refused<AdapterMissingException>(() => Adapters.Choose("AMD", present, null), "0 adapters match 'AMD'; there are: 0 Intel UHD, 1 GeForce");
    Refused<AdapterMissingException>(() => Adapters.Choose("r", present, null), "2 adapters match 'r'");
    Refused<AdapterMissingException>(() => Adapters.Choose("minimum_power", present, 3), "names no GPU");
}

void FallBack()
{
#if STAND_IN
    StandIn.OpenError = "887A0002 The specified device does not exist";
#endif
    var options = new Options { Adapter = "99" };
    Refused<AdapterMissingException>(() => new Model(app, options), "887A0002");
    Demand(warnings.Texts.Count == 0, "a warning without a fall-back");
    using var model = new Model(app, options with { Device = Device.DirectMLOrCpu });
    Demand(model is { Asked: Device.DirectMLOrCpu, Device: "cpu" }, $"device {model.Device}");
    Demand(model.Notice.Contains("887A0002", StringComparison.Ordinal), model.Notice);
    Demand(warnings.Texts.SequenceEqual([model.Notice]), $"{warnings.Texts.Count} warnings");
    model.Run(Feeds(model, 0));
    Demand(warnings.Texts.Count == 1, "a warning of a run");
    warnings.Texts.Clear();
#if STAND_IN
    StandIn.OpenError = "";
    model.Reopen();
    Demand(model is { Asked: Device.DirectMLOrCpu, Device: "dml", Notice: "" } && warnings.Texts.Count == 0, "back on DirectML");
#endif
}

void NoVendorsProvider()
{
    var libraries = new Dictionary<string, string> { ["NpuProvider"] = Path.Combine(app, "nowhere.dll") };
    using var model = new Model(app, new Options { Prefer = Prefer.Npu, Libraries = libraries });
    Demand(model is { Asked: Device.DirectML, Device: "dml" }, "no vendor's provider: DirectML");
    Demand(model.Notice.Contains("NpuProvider cannot be registered", StringComparison.Ordinal), model.Notice);
    Demand(warnings.Texts.SequenceEqual([model.Notice]), "no warning, or two");
    warnings.Texts.Clear();
    model.Run(Feeds(model, 0));
}

#if STAND_IN
void Opened()
{
    StandIn.Opened.Clear();
    StandIn.Runs = 0;
    using (new Model(app, new Options { Adapter = "1", DisableMetacommands = true }))
    {
        SessionOptions settings = StandIn.Opened.Single();
        Demand(!settings.EnableMemoryPattern, "memory pattern is on");
        Demand(settings.ExecutionMode == ExecutionMode.ORT_SEQUENTIAL, "execution is parallel");
        Demand(settings.Providers["DML"]["device_id"] == "1", "adapter");
        Demand(settings.Providers["DML"]["disable_metacommands"] == "true", "metacommands");
        Demand(((byte[])StandIn.Source).SequenceEqual(File.ReadAllBytes(Path.Combine(app, "model.onnx"))), "other bytes than were compared");
        Demand(StandIn.Runs == 1, "no first run");
    }
    new Model(app, new Options { WarmUp = false }).Dispose();
    Demand(StandIn.Runs == 1, "a first run that was not requested");

    // One run at a time in a model, several in a process; sessions are created one at a time.
    using Model first = new(app), second = new(app);
    int AtOnce(params Model[] models)
    {
        StandIn.AtOnce = 0;
        StandIn.Go.Reset();
        Task[] runs = [.. models.Select(model => model.RunAsync(Feeds(model, 0)))];
        SpinWait.SpinUntil(() => StandIn.Running == models.Distinct().Count());
        StandIn.Go.Set();
        Task.WaitAll(runs);
        return StandIn.AtOnce;
    }
    Demand(AtOnce(first, first) == 1, "two runs of one model at a time");
    Demand(AtOnce(first, second) == 2, "two models do not run at the same time");
    Task.WaitAll([.. Enumerable.Range(0, 4).Select(_ => Task.Run(() => new Model(app).Dispose()))]);
    Demand(StandIn.CreatedAtOnce == 1, "two sessions were created at a time");

    StandIn.InMemoryOfDirectML = false;
    using (var model = new Model(app))
        Demand(model.Evidence == "ONNX Runtime created the session with DmlExecutionProvider", model.Evidence);
    StandIn.InMemoryOfDirectML = true;
}

void Removed()
{
    using var model = new Model(app);
    foreach (string code in new[] { "887A0005", "887a0006", "887A0007", "887A0020" })
    {
        StandIn.RunError = $"Non-zero status code: DmlCommandRecorder.cpp {code} The GPU device instance has been suspended.";
        Refused<DeviceRemovedException>(() => model.Run(Feeds(model, 0)), "call Reopen()");
        StandIn.RunError = "";
        Refused<DeviceRemovedException>(() => model.Run(Feeds(model, 0)), "Reopen(Device.Cpu)"); // the session is gone
        model.Reopen();
        model.Run(Feeds(model, 0));
    }
    foreach (string text in new[] { "8007000E Not enough memory resources", "bad allocation", "Failed to allocate memory" })
    {
        StandIn.RunError = text;
        Refused<OutOfDeviceMemoryException>(() => model.Run(Feeds(model, 0)), "smaller inputs");
        StandIn.RunError = "";
        Refused<OutOfDeviceMemoryException>(() => model.Run(Feeds(model, 0)), "smaller inputs");
        model.Reopen(Device.Cpu);
        model.Reopen();
        Demand(model is { Asked: Device.Cpu, Device: "cpu" }, model.Device);
        model.Run(Feeds(model, 0));
        model.Reopen(Device.DirectML);
    }
}

void Versions()
{
    StandIn.Version = "1.2.0";
    Refused<RuntimeMissingException>(() => new Model(app, new Options { Device = Device.Cpu }), "1.2.0, older than 1.");
    StandIn.Version = "1.24.4";
}

void VendorsProviders()
{
    StandIn.Devices.AddRange([new("CPUExecutionProvider", OrtHardwareDeviceType.CPU), new("DmlExecutionProvider", OrtHardwareDeviceType.GPU)]);
    var libraries = new Dictionary<string, string> { ["NpuProvider"] = Path.Combine(app, "model.json") };
    var options = new Options { Prefer = Prefer.Gpu, Libraries = libraries };
    for (int round = 0; round < 2; ++round) // the library is registered once
    {
        using var model = new Model(app, options);
        Demand(model is { Device: "NpuProvider", Notice: "" }, $"{model.Device}: {model.Notice}");
        Demand(model.Evidence == "ONNX Runtime passes 1 of 1 inputs to NpuProvider", model.Evidence);
        SessionOptions settings = StandIn.Opened[^1];
        Demand(settings.Providers.Keys.Single() == "NpuProvider" && settings.EnableMemoryPattern, "the session's provider");
        Demand(settings.Sizes["batch"] == 1, "a fixed size of the prepared model");
        Demand(((byte[])StandIn.Source).SequenceEqual(File.ReadAllBytes(Path.Combine(app, "original.onnx"))), "not the original");
        model.Run(Feeds(model, 0));
        model.Reopen(Device.Cpu);
        Demand(model.Device == "cpu" && StandIn.Opened[^1].Sizes.Count == 0, "the CPU on request");
        Demand(((byte[])StandIn.Source).SequenceEqual(File.ReadAllBytes(Path.Combine(app, "model.onnx"))), "not the prepared model");
    }
    StandIn.Devices.Add(new OrtEpDevice("GpuProvider", OrtHardwareDeviceType.GPU));
    using (var model = new Model(app, options))
        Demand(model.Device == "GpuProvider", "the preferred kind");
    using (var model = new Model(app, options with { Prefer = Prefer.Npu }))
        Demand(model.Device == "NpuProvider", "the other kind");
    StandIn.VendorError = "an operator is not supported";
    using (var model = new Model(app, options))
        Demand(model.Device == "dml" && model.Notice.Contains("not supported", StringComparison.Ordinal), model.Notice);
    Demand(warnings.Texts.Count == 1, "no warning, or two");
    StandIn.VendorError = "";
    StandIn.Unused = true;
    using (var model = new Model(app, options))
        Demand(model.Device == "dml" && model.Notice.Contains("passes no input to GpuProvider", StringComparison.Ordinal), model.Notice);
    StandIn.Unused = false;
}
#endif

internal sealed class Warnings : TraceListener
{
    public List<string> Texts { get; } = [];

    public override void TraceEvent(TraceEventCache? cache, string source, TraceEventType kind, int id, string? message) => Texts.Add(message!);

    public override void TraceEvent(TraceEventCache? cache, string source, TraceEventType kind, int id, string? format, params object?[]? words) =>
        Texts.Add(format!);

    public override void Write(string? message) { }

    public override void WriteLine(string? message) { }
}

// The behaviours of the loader that the sample does not show. `checks.exe FILE ...` tries them on the real DirectML, with the
// names of the package's files; `checks.exe MODE` tries those that need stand_in.cpp, in a process of its own. Prints "good" last.
#include "dmlprep_model.h"
#include "fed.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>

using namespace dmlprep;

static void demand(bool holds, const std::string& what, const Status& status = {}) {
    if (holds)
        return;
    std::printf("WRONG: %s: %d %s\n", what.c_str(), static_cast<int>(status.code), status.message.c_str());
    std::fflush(stdout);
    std::_Exit(1);
}

static void refused(const Status& status, Code code, const std::string& word) {
    demand(status.code == code && status.message.find(word) != std::string::npos, "not refused with " + word, status);
}

static std::unique_ptr<Model> loaded(const Options& options = {}) {
    std::unique_ptr<Model> model;
    const Status status = Model::load(".", options, model);
    demand(bool(status), "load", status);
    return model;
}

static void runs(Model& model) {
    Tensors outputs;
    const Status status = model.run(fed(model, 0), outputs);
    demand(bool(status), "run", status);
    for (const TensorInfo& info : model.outputs())
        demand(outputs.count(info.name) && outputs[info.name].shape() == info.shape, "an output of another shape");
}

// Tensors without a model.
static void tensors() {
    const std::array<float, 4> numbers{1, 2, 3, 4};
    const Tensor copy = Tensor::from(numbers.data(), numbers.size(), {2, 2});
    demand(copy.type() == Type::float32 && copy.as<float>().size() == 4 && copy.as<float>()[3] == 4, "a copy of an array");
    demand(copy.as<std::int32_t>().empty() && copy.as<double>().empty() && copy.as<Half>().empty(), "a view of another type");
    demand(Tensor().as<float>().empty() && Tensor().type() == Type::none, "an empty tensor");
    std::vector<std::int64_t> whole{5, 6};
    const std::int64_t* place = whole.data();
    const Tensor moved = Tensor::from(std::move(whole), {2});
    demand(moved.as<std::int64_t>().data() == place, "a vector that is moved is copied");
    const bool flags[] = {true, false};
    demand(Tensor::from(flags, 2, {2}).type() == Type::boolean, "booleans");
    View<float> view;
    {
        const Tensor shared = copy;
        view = shared.as<float>();
    }
    float sum = 0;
    for (const float one : view)
        sum += one;
    demand(sum == 10, "the numbers of a copy");
#if defined(__cpp_lib_span)
    const std::span<const float> span = copy.as<float>();
    demand(Tensor::from(span, {4}).as<float>()[0] == 1 && Tensor::from(std::span(numbers), {4}).as<float>().size() == 4, "a span");
#endif
    for (unsigned bits = 0; bits < 0x10000; ++bits) {  // every number of 16 bits, there and back
        Half half;
        half.bits = static_cast<std::uint16_t>(bits);
        const float value = static_cast<float>(half);
        demand(value != value ? (bits & 0x7C00) == 0x7C00 && (bits & 0x3FF) : Half(value).bits == bits, "a half and back");
    }
    const float infinity = std::numeric_limits<float>::infinity();
    demand(Half(65519.0f).bits == 0x7BFF && Half(65520.0f).bits == 0x7C00 && Half(-infinity).bits == 0xFC00, "large halves");
    demand(Half(1.0f + 1.0f / 2048).bits == 0x3C00 && Half(1.0f + 3.0f / 2048).bits == 0x3C02, "ties to even");
    demand(Half(2.98023224e-8f).bits == 0 && Half(2.9802326e-8f).bits == 1, "the smallest half");
}

// Two models, each with two threads: runs of one model take turns, and both models run.
static void two_threads() {
    const std::unique_ptr<Model> models[2] = {loaded(), loaded()};
    Tensors expected[2];
    for (int i = 0; i < 2; ++i)
        demand(bool(models[0]->run(fed(*models[0], i), expected[i])), "first runs");
    std::atomic<int> wrong{0};
    std::vector<std::thread> started;
    for (int number = 0; number < 4; ++number)
        started.emplace_back([&, number] {
            for (int round = 0; round < 3; ++round) {
                Tensors outputs;
                const Status status = models[number / 2]->run(fed(*models[0], number % 2), outputs);
                wrong += !status || !same(outputs, expected[number % 2]);
            }
        });
    for (std::thread& one : started)
        one.join();
    demand(wrong == 0, "threads got other numbers");
    demand(!same(expected[0], expected[1]), "the two feeds give the same");
}

static void wrong_inputs() {
    const std::unique_ptr<Model> model = loaded();
    const std::string& name = model->inputs().front().name;
    const Tensor good = fed(model->inputs().front(), 0);
    Tensors outputs;
    const auto with = [&](const Tensor& one) {
        Tensors all = fed(*model, 0);
        all[name] = one;
        return model->run(all, outputs);
    };
    Shape shape = good.shape();
    shape.back() += 1;
    const View<std::uint8_t> bytes = good.bytes();
    const std::vector<std::uint8_t> raw(bytes.begin(), bytes.end());
    const auto owner = std::make_shared<const std::vector<std::uint8_t>>(raw);
    refused(model->run({}, outputs), Code::bad_input, "input '" + name + "' is missing");
    refused(with(Tensor(good.type(), shape, owner, owner->data(), owner->size())), Code::bad_input, ", but the model needs ");
    refused(with(Tensor(Type::float16, good.shape(), owner, owner->data(), owner->size())), Code::bad_input, "is float16, but");
    refused(with(Tensor(good.type(), good.shape(), owner, owner->data(), owner->size() - size_of(good.type()))), Code::bad_input,
            " elements, but ");
    refused(with(Tensor()), Code::bad_input, "but the model needs");
    Tensors more = fed(*model, 0);
    more["nothing"] = good;
    refused(model->run(more, outputs), Code::bad_input, "no input 'nothing'; it has: " + name);
    demand(outputs.empty(), "outputs after an error");
    runs(*model);
    Options options;
    options.sizes["nothing"] = 1;
    std::unique_ptr<Model> none;
    refused(Model::load(".", options, none), Code::bad_input, "no free dimension 'nothing'; there are: ");
}

static void outputs_outlive_the_model() {
    Tensors outputs, again;
    {
        const std::unique_ptr<Model> model = loaded();
        demand(bool(model->run(fed(*model, 0), outputs)), "run");
    }
    const std::unique_ptr<Model> model = loaded();
    demand(bool(model->run(fed(*model, 0), again)), "run again");
    demand(same(outputs, again), "outputs of a model that is gone");
}

static void true_devices() {
    std::vector<std::string> logged;
    Options options;
    options.log = [&](const std::string& text) { logged.push_back(text); };
    std::unique_ptr<Model> model = loaded(options);
    std::printf("%s: %s\n", model->device().c_str(), model->evidence().c_str());
    demand(model->asked() == Device::dml && model->device() == "dml" && model->notice().empty(), "DirectML");
    demand(model->evidence().find("ONNX Runtime assigned ") == 0 &&
               model->evidence().find(" nodes to DmlExecutionProvider") != std::string::npos,
           model->evidence());
    demand(bool(model->reopen(Device::cpu)), "the CPU");
    demand(model->asked() == Device::cpu && model->device() == "cpu" && model->notice().empty() && logged.empty(), "the CPU");
    demand(model->evidence().find(" nodes to CPUExecutionProvider") != std::string::npos, model->evidence());
    // An adapter that is missing: refused, or said once.
    options.adapter = "99";
    std::unique_ptr<Model> none;
    refused(Model::load(".", options, none), Code::adapter_missing, "887A0002");
    demand(!none && logged.empty(), "a model without a device");
    options.device = Device::dml_or_cpu;
    model = loaded(options);
    runs(*model);
    demand(model->asked() == Device::dml_or_cpu && model->device() == "cpu", "the fall-back");
    demand(model->notice().find("DirectML is not available: the adapter cannot be used") == 0, model->notice());
    demand(logged.size() == 1 && logged[0] == model->notice(), "a fall-back that is not logged once");
    // No library of a vendor: DirectML as usual, and said once.
    options = {};
    logged.clear();
    options.log = [&](const std::string& text) { logged.push_back(text); };
    options.prefer = Prefer::npu;
    model = loaded(options);
    runs(*model);
    demand(model->device() == "dml" && model->notice().find("no provider of a vendor has an NPU or GPU here") != std::string::npos &&
               logged.size() == 1,
           model->notice());
}

static void from_memory() {
    Options options;
    options.read = [](const std::string& name, std::vector<std::uint8_t>& bytes) {
        std::ifstream file(name, std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(file), {});
        return static_cast<bool>(file);
    };
    std::unique_ptr<Model> model;
    const Status status = Model::load("nowhere", options, model);
    demand(bool(status), "bytes that the app gives", status);
    const Read plain = options.read;
    options.read = [plain](const std::string& name, std::vector<std::uint8_t>& bytes) {
        const bool exists = plain(name, bytes);
        if (name == "model.onnx")
            bytes[bytes.size() / 2] ^= 1;
        return exists;
    };
    const Status changed = Model::load("nowhere", options, model);
    demand(changed.code == Code::package_damaged && changed.file == "model.onnx", "bytes that were changed", changed);
}

// A byte that was changed in any of the package's files, and files that are missing.
static void tampering(int count, char** names) {
    for (int i = 0; i < count; ++i) {
        const std::string name = names[i];
        std::ifstream file(name, std::ios::binary);
        const std::string raw{std::istreambuf_iterator<char>(file), {}};
        file.close();
        demand(!raw.empty(), name);
        Options options;
        options.device = Device::dml_or_cpu;  // no reason to fall back
        std::unique_ptr<Model> model;
        for (const std::size_t place : {std::size_t(0), raw.size() / 2, raw.size() - 1}) {
            std::string changed = raw;
            changed[place] = static_cast<char>(changed[place] ^ 1);
            std::ofstream(name, std::ios::binary) << changed;
            const Status status = Model::load(".", options, model);
            std::ofstream(name, std::ios::binary) << raw;
            const bool named = status.file == (name == "model.json.sha256" ? "model.json" : name);
            demand(status.code == Code::package_damaged && named && status.message.find(status.file) == 0, name, status);
        }
        if (name != "model.json" && name != "model.json.sha256" && name != "model.onnx")
            continue;
        std::filesystem::rename(name, "away");
        const Status status = Model::load("", options, model);  // the program's folder, which is the current one
        std::filesystem::rename("away", name);
        demand(status.code == Code::package_damaged && status.message.find(name + " is missing in " + std::filesystem::current_path().string()) == 0, name, status);
    }
}

static void no_runtime() {
    Options options;
    options.device = Device::dml_or_cpu;
    options.runtime = "nowhere";
    std::unique_ptr<Model> none;
    refused(Model::load(".", options, none), Code::runtime_missing, "no onnxruntime.dll can be loaded from ");
}

static void lost(const std::string& mode) {
    Options options;
    options.runtime = "stand_in";
    const std::unique_ptr<Model> model = loaded(options);
    demand(model->evidence().find("ONNX Runtime 1.23.0 created the session with DmlExecutionProvider") == 0, model->evidence());
    runs(*model);
    const Code code = mode == "removed" ? Code::device_removed : Code::out_of_memory;
    Tensors outputs;
    refused(model->run(fed(*model, 0), outputs), code, "call reopen()");
    refused(model->run(fed(*model, 0), outputs), code, "call reopen()");  // until it is reopened
    const Status status = model->reopen();
    demand(model->device() == "dml", model->device());
    demand(bool(status), "reopen", status);
    runs(*model);
}

static void no_directml() {
    std::vector<std::string> logged;
    Options options;
    options.runtime = "stand_in";
    options.log = [&](const std::string& text) { logged.push_back(text); };
    std::unique_ptr<Model> model;
    refused(Model::load(".", options, model), Code::runtime_missing, "has no DirectML");
    options.device = Device::dml_or_cpu;
    model = loaded(options);
    runs(*model);
    demand(model->device() == "cpu" && logged.size() == 1 && logged[0] == model->notice() &&
               model->notice().find("the model runs on the CPU") != std::string::npos,
           model->notice());
}

static void vendors(const std::string& mode) {
    std::vector<std::string> logged;
    Options options;
    options.runtime = "stand_in";
    options.prefer = Prefer::npu;
    options.libraries["vendor"] = "C:\\nowhere\\other.dll";
    options.log = [&](const std::string& text) { logged.push_back(text); };
    std::unique_ptr<Model> model = loaded(options);
    demand(model->device() == "dml" && logged.size() == 1 && model->notice().find("Error loading the library") != std::string::npos,
           model->notice());
    options.libraries["vendor"] = "C:\\nowhere\\vendor.dll";
    model = loaded(options);  // of the GPU, where there is no NPU
    runs(*model);
    const bool taken = mode != "fails";
    demand(model->device() == (taken ? "VendorExecutionProvider" : "dml"), model->device());
    demand(model->notice().empty() == taken && logged.size() == (taken ? 1 : 2), model->notice());
    demand(model->evidence().find(taken ? "created the session with VendorExecutionProvider"
                                        : "created the session with DmlExecutionProvider") != std::string::npos,
           model->evidence());
    demand(bool(model->reopen(Device::cpu)) && model->device() == "cpu" && model->notice().empty(), "the CPU");
}

// A provider of a vendor runs the original, which DirectML does not need.
static void original() {
    _putenv_s("STAND_IN", "npu");
    Options options;
    options.runtime = "stand_in";
    options.prefer = Prefer::npu;
    options.libraries["vendor"] = "C:\\nowhere\\vendor.dll";
    std::unique_ptr<Model> model = loaded(options);
    runs(*model);
    demand(model->device() == "VendorExecutionProvider" && model->notice().empty(), model->notice());
    std::filesystem::remove("original.onnx");
    const Status status = Model::load(".", options, model);
    demand(status.code == Code::package_damaged && status.file == "original.onnx", "no original", status);
    options.prefer = Prefer::none;
    runs(*loaded(options));
}

int main(int count, char** words) {
    const std::string first = count == 2 ? words[1] : "";
    if (first == "removed" || first == "memory") {
        lost(first);
    } else if (first == "no-dml") {
        no_directml();
    } else if (first == "npu" || first == "gpu" || first == "fails") {
        vendors(first);
    } else if (first == "original") {
        original();
    } else if (first == "no-runtime") {
        no_runtime();
    } else {
        tensors();
        true_devices();
        tampering(count - 1, words + 1);
        two_threads();
        wrong_inputs();
        outputs_outlive_the_model();
        from_memory();
        for (const char* mode : {"no-runtime", "removed", "memory", "no-dml", "npu", "gpu", "fails"}) {
            _putenv_s("STAND_IN", mode);
            const int code = std::system((std::string("C:\\checkout\\checks.exe ") + mode).c_str());
            demand(code == 0, mode);
        }
    }
    std::printf("good\n");
    return 0;
}

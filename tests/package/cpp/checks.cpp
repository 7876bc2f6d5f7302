// What the loader promises beside the sample: threads and models take turns, inputs are checked, the bytes may come from the
// app, and a GPU that goes away is told of with what to do. Prints "good" last.
#include "dmlprep_model.h"
#include "fed.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

using namespace dmlprep;

static void demand(bool holds, const char* what, const Status& status = {}) {
    if (holds)
        return;
    std::printf("WRONG: %s: %d %s\n", what, static_cast<int>(status.code), status.message.c_str());
    std::exit(1);
}

static bool same(const std::vector<Tensor>& one, const std::vector<Tensor>& other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                      [](const Tensor& a, const Tensor& b) { return a.shape == b.shape && a.bytes == b.bytes; });
}

static void threads() {
    std::unique_ptr<Model> models[2];
    for (auto& model : models) {
        const Status status = Model::load(".", {}, model);
        demand(bool(status), "load", status);
    }
    std::vector<Tensor> expected[2];
    for (int i = 0; i < 2; ++i)
        demand(bool(models[0]->run(fed(*models[0], i), expected[i])), "first runs");
    std::atomic<int> wrong{0};
    std::vector<std::thread> started;
    for (int number = 0; number < 4; ++number)
        started.emplace_back([&, number] {
            for (int round = 0; round < 3; ++round) {
                std::vector<Tensor> answers;
                const Status status = models[number / 2]->run(fed(*models[0], number % 2), answers);
                wrong += !status || !same(answers, expected[number % 2]);
            }
        });
    for (std::thread& one : started)
        one.join();
    demand(wrong == 0, "threads got other numbers");
    demand(!same(expected[0], expected[1]), "the two feeds give the same");
}

static void bad_inputs() {
    std::unique_ptr<Model> model;
    demand(bool(Model::load(".", {}, model)), "load");
    std::vector<Tensor> answers, given = fed(*model, 0);
    demand(model->run({}, answers).code == Code::bad_input, "a missing input");
    given.front().shape.back() += 1;
    demand(model->run(given, answers).code == Code::bad_input, "another shape");
    given = fed(*model, 0);
    given.front().type = Type::float16;
    demand(model->run(given, answers).code == Code::bad_input, "another type");
    given = fed(*model, 0);
    given.front().bytes.pop_back();
    demand(model->run(given, answers).code == Code::bad_input, "too few bytes");
    demand(bool(model->run(fed(*model, 0), answers)), "it still runs");
    Options options;
    options.sizes["nothing"] = 1;
    demand(Model::load(".", options, model).code == Code::bad_input, "a dimension that is not there");
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
        const bool there = plain(name, bytes);
        if (name == "model.onnx")
            bytes[bytes.size() / 2] ^= 1;
        return there;
    };
    const Status damaged = Model::load("nowhere", options, model);
    demand(damaged.code == Code::package_damaged && damaged.file == "model.onnx", "bytes that were changed", damaged);
}

// In a process of its own: it has another onnxruntime.dll.
static void removed() {
    Options options;
    options.runtime = "removed";
    std::unique_ptr<Model> model;
    Status status = Model::load(".", options, model);
    demand(bool(status), "load with the stand-in", status);
    std::vector<Tensor> answers;
    demand(bool(model->run(fed(*model, 0), answers)), "the second run");
    status = model->run(fed(*model, 0), answers);
    demand(status.code == Code::device_removed, "a GPU that goes away", status);
    demand(status.message.find("call reopen()") != std::string::npos, "what to do", status);
    demand(model->run(fed(*model, 0), answers).code == Code::device_removed, "it stays away");
    status = model->reopen(Device::directml);
    demand(bool(status), "reopen", status);
    demand(bool(model->run(fed(*model, 0), answers)), "a run after reopening");
}

// A byte that was changed in any of the package's files, and files that are not there.
static void damaged(int count, char** names) {
    for (int i = 0; i < count; ++i) {
        const std::string name = names[i];
        std::ifstream file(name, std::ios::binary);
        const std::string raw{std::istreambuf_iterator<char>(file), {}};
        file.close();
        demand(!raw.empty(), name.c_str());
        std::unique_ptr<Model> model;
        for (const std::size_t place : {std::size_t(0), raw.size() / 2, raw.size() - 1}) {
            std::string changed = raw;
            changed[place] = static_cast<char>(changed[place] ^ 1);
            std::ofstream(name, std::ios::binary) << changed;
            const Status status = Model::load(".", {}, model);
            std::ofstream(name, std::ios::binary) << raw;
            const bool named = status.file == (name == "model.json.sha256" ? "model.json" : name);
            demand(status.code == Code::package_damaged && named && status.message.find(status.file) == 0, name.c_str(), status);
        }
        if (name != "model.json" && name != "model.json.sha256" && name != "model.onnx")
            continue;
        std::filesystem::rename(name, "away");
        const Status status = Model::load(".", {}, model);
        std::filesystem::rename("away", name);
        demand(status.code == Code::package_damaged && status.message.find(name + " is missing") == 0, name.c_str(), status);
    }
}

int main(int count, char** words) {
    if (count > 1 && std::string(words[1]) == "removed") {
        removed();
        return 0;
    }
    damaged(count - 1, words + 1);
    threads();
    bad_inputs();
    from_memory();
    const int code = std::system("C:\\checkout\\checks.exe removed");
    demand(code == 0, "the stand-in for a GPU that goes away");
    std::printf("good\n");
    return 0;
}

// What the loader promises of buckets: buckets.exe FOLDER GRID, with sizes a line in GRID. Prints what each of these sizes takes,
// then "good". tests/package/python/buckets.py does the same.
#include "dmlprep_model.h"
#include "fed.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

using namespace dmlprep;

static void demand(bool holds, const std::string& what, const Status& status = {}) {
    if (holds)
        return;
    std::printf("WRONG: %s: %d %s\n", what.c_str(), static_cast<int>(status.code), status.message.c_str());
    std::exit(1);
}

static void refused(const Status& status, Code code, const std::string& word) {
    demand(status.code == code && status.message.find(word) != std::string::npos, "not refused with " + word, status);
}

static std::unique_ptr<Model> loaded(const std::string& folder, const Options& options = {}) {
    std::unique_ptr<Model> model;
    const Status status = Model::load(folder, options, model);
    demand(bool(status), "load", status);
    return model;
}

static void runs(Model& model) {
    Tensors outputs;
    const Status status = model.run(fed(model, 0), outputs);
    demand(bool(status), "run", status);
}

static void choices(const Model& model, const std::string& grid) {
    std::ifstream file(grid);
    for (std::string line; std::getline(file, line);) {
        Sizes sizes;
        std::istringstream words(line);
        for (std::string word; words >> word;)
            sizes[word.substr(0, word.find('='))] = std::atoll(word.c_str() + word.find('=') + 1);
        Choice choice;
        if (const Status status = model.choose(sizes, choice); !status) {
            demand(status.code == Code::bad_input, "the code", status);
            std::printf("%s\n", status.message.c_str());
            continue;
        }
        std::printf("%s", choice.bucket.c_str());
        for (const auto& [name, missing] : choice.padding)
            std::printf(" %s=%lld", name.c_str(), static_cast<long long>(missing));
        std::printf("\n");
    }
}

static void taking(const std::string& folder) {
    const Sizes large{{"height", 24}, {"width", 24}};
    Options options;
    options.sizes = large;
    const std::unique_ptr<Model> model = loaded(folder, options);
    demand(model->bucket() == "height24-width24" && model->padding().empty(), "the bucket of these sizes");
    const Tensors given = fed(*model, 0);
    Tensors first, again;
    demand(bool(model->run(given, first)), "the first run");
    Status status = model->take({{"height", 10}, {"width", 16}});
    demand(bool(status), "take", status);
    demand(model->bucket() == "height16-width16" && model->padding() == Sizes{{"height", 6}}, "the bucket with room");
    runs(*model);
    refused(model->run(given, again), Code::bad_input, "the bucket height16-width16 has fixed sizes: pad the input");
    refused(model->take({{"height", 25}, {"width", 1}}), Code::bad_input, "no bucket has room for height=25, width=1");
    demand(model->bucket() == "height16-width16", "another bucket after an error");
    runs(*model);
    demand(bool(model->take(large)) && bool(model->run(given, again)), "the first bucket again");
    demand(same(first, again), "other numbers");
    demand(bool(model->reopen(Device::dml)) && model->bucket() == "height24-width24", "the bucket after reopen");
    runs(*model);
    demand(loaded(folder)->bucket() == "height16-width16", "the first bucket");
    options.sizes = {{"depth", 1}};
    std::unique_ptr<Model> none;
    refused(Model::load(folder, options, none), Code::bad_input, "no free dimension 'depth'; there are: height, width");
}

static void damaged(const std::filesystem::path& folder) {
    const char* names[] = {"height16-width16.onnx", "height24-width16.onnx", "height24-width24.onnx", "buckets.data"};
    for (const char* name : names) {
        std::ifstream file(folder / name, std::ios::binary);
        const std::string raw{std::istreambuf_iterator<char>(file), {}};
        file.close();
        demand(!raw.empty(), name);
        std::string changed = raw;
        changed.back() = static_cast<char>(changed.back() ^ 1);
        std::ofstream(folder / name, std::ios::binary) << changed;
        std::unique_ptr<Model> model;
        const Status status = Model::load(folder, {}, model);
        std::ofstream(folder / name, std::ios::binary) << raw;
        refused(status, Code::package_damaged, std::string(name) + " was changed");
        demand(status.file == name, "the file's name", status);
    }
    const std::unique_ptr<Model> model = loaded(folder.string());
    std::filesystem::rename(folder / names[1], folder / "away");
    const Status status = model->take({{"height", 24}, {"width", 16}});
    std::filesystem::rename(folder / "away", folder / names[1]);
    refused(status, Code::package_damaged, "height24-width16.onnx is missing");
    demand(model->bucket() == "height16-width16", "another bucket after a missing file");
    runs(*model);
}

int main(int, char** words) {
    choices(*loaded(words[1]), words[2]);
    taking(words[1]);
    damaged(words[1]);
    std::printf("good\n");
    return 0;
}

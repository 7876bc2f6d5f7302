// Runs the packaged model once: sample.exe FOLDER [dml|cpu|dml-or-cpu] [adapter] [DIM=SIZE ...]. Replace example() by your own
// data. Sizes choose among the buckets of a package that has some.
#include "dmlprep_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace dmlprep;

namespace {

// Each output of the model on the CPU: the difference allowed (-1: not compared), then the first numbers.
const std::vector<std::vector<double>> EXPECTED = {@EXPECTED@};

// Calls `work` with a value of the C++ type of the elements. A boolean is a byte here.
template <class Work>
auto with_type(Type type, Work&& work) {
    switch (type) {
    case Type::float16: return work(Half{});
    case Type::float32: return work(float{});
    case Type::float64: return work(double{});
    case Type::int8: return work(std::int8_t{});
    case Type::int16: return work(std::int16_t{});
    case Type::int32: return work(std::int32_t{});
    case Type::int64: return work(std::int64_t{});
    case Type::uint16: return work(std::uint16_t{});
    case Type::uint32: return work(std::uint32_t{});
    case Type::uint64: return work(std::uint64_t{});
    default: return work(std::uint8_t{});
    }
}

// The same numbers in the sample of each language, in the range that the contract knows. A free dimension gets size 1.
Tensor example(const TensorInfo& info) {
    Shape shape = info.shape;
    std::size_t count = 1;
    for (std::int64_t& size : shape) {
        size = std::max<std::int64_t>(size, size < 0 ? 1 : 0);
        count *= static_cast<std::size_t>(size);
    }
    const double low = info.has_range ? info.low : 0, high = info.has_range ? info.high : 1;
    const auto first = static_cast<std::int64_t>(low), numbers = static_cast<std::int64_t>(high - low) + 1;
    return with_type(info.type, [&](auto zero) {
        using Value = decltype(zero);
        const auto values = std::make_shared<std::vector<Value>>(count);
        for (std::size_t i = 0; i < count; ++i) {
            if constexpr (std::is_integral_v<Value>)  // 0 to 255 (Knuth's multiplicative hash)
                (*values)[i] = static_cast<Value>(
                    info.has_range ? first + static_cast<std::int64_t>(static_cast<std::uint32_t>(i) * 2654435761u >> 24) % numbers
                                   : static_cast<std::int64_t>(i % 2));
            else if constexpr (std::is_same_v<Value, double>)
                (*values)[i] = low + static_cast<double>(i * 37 % 101) / 101 * (high - low);
            else
                (*values)[i] = Value(static_cast<float>(low + static_cast<double>(i * 37 % 101) / 101 * (high - low)));
        }
        return Tensor(info.type, shape, values, values->data(), count * sizeof(Value));
    });
}

std::vector<double> first_numbers(const Tensor& tensor) {
    std::vector<double> numbers;
    with_type(tensor.type(), [&](auto zero) {
        using Value = decltype(zero);
        const std::size_t count = tensor.bytes().size() / sizeof(Value);
        for (std::size_t i = 0; i < std::min<std::size_t>(count, 8); ++i)
            if constexpr (std::is_same_v<Value, std::uint8_t>)
                numbers.push_back(static_cast<double>(tensor.bytes()[i]));
            else if constexpr (std::is_same_v<Value, Half>)
                numbers.push_back(static_cast<double>(static_cast<float>(tensor.as<Half>()[i])));
            else
                numbers.push_back(static_cast<double>(tensor.as<Value>()[i]));
    });
    return numbers;
}

void print(const std::string& name, const double* numbers, std::size_t count) {
    std::printf("%s", name.c_str());
    for (std::size_t i = 0; i < count; ++i)
        std::printf(" %.6f", numbers[i]);
    std::printf("\n");
}

int failed(const Status& status) {
    std::fprintf(stderr, "error %d: %s\n", static_cast<int>(status.code), status.message.c_str());
    return 1;
}

}  // namespace

int main(int count, char** arguments) {
    Options options;
    std::vector<std::string> words;
    for (const std::string& word : std::vector<std::string>(arguments + std::min(count, 1), arguments + count))
        if (const std::size_t at = word.find('='); at != std::string::npos)
            options.sizes[word.substr(0, at)] = std::atoll(word.c_str() + at + 1);
        else
            words.push_back(word);
    const std::string device = words.size() > 1 ? words[1] : "dml";
    options.device = device == "cpu" ? Device::cpu : device == "dml-or-cpu" ? Device::dml_or_cpu : Device::dml;
    if (words.size() > 2)
        options.adapter = words[2];
    std::unique_ptr<Model> model;
    if (Status status = Model::load(words.empty() ? "" : words[0], options, model); !status)
        return failed(status);
    std::printf("device %s (%s)\n", model->device().c_str(), model->evidence().c_str());
    if (!model->bucket().empty()) {
        std::string padding;
        for (const auto& [name, missing] : model->padding())
            padding += " " + name + "=" + std::to_string(missing);
        std::printf("bucket %s, padding%s\n", model->bucket().c_str(), padding.empty() ? " none" : padding.c_str());
    }
    Tensors inputs, outputs;
    for (const TensorInfo& info : model->inputs())
        inputs[info.name] = example(info);
    if (Status status = model->run(inputs, outputs); !status)
        return failed(status);
    bool compared = false;
    std::string different;
    for (std::size_t place = 0; place < model->outputs().size(); ++place) {
        const std::string& name = model->outputs()[place].name;
        std::string shape;
        for (std::int64_t size : outputs[name].shape())
            shape += (shape.empty() ? "" : "x") + std::to_string(size);
        const std::vector<double> numbers = first_numbers(outputs[name]);
        print(name + " " + shape, numbers.data(), numbers.size());
        if (!options.sizes.empty() || place >= EXPECTED.size() || EXPECTED[place].empty())
            continue;
        const std::vector<double>& expected = EXPECTED[place];
        print("  expected", expected.data() + 1, expected.size() - 1);
        bool equal = numbers.size() + 1 == expected.size();
        for (std::size_t i = 0; equal && i < numbers.size(); ++i)
            equal = std::abs(numbers[i] - expected[i + 1]) <= expected[0];
        compared = compared || expected[0] >= 0;
        if (expected[0] >= 0 && !equal)
            different += " " + name;
    }
    if (!different.empty())
        std::fprintf(stderr, "NOT as expected:%s\n", different.c_str());
    else
        std::printf(compared ? "as expected\n" : "not compared\n");
    return different.empty() ? 0 : 1;
}

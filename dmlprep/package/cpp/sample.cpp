// Runs the packaged model once: sample.exe FOLDER [dml|cpu|dml-or-cpu] [adapter] [DIM=SIZE ...]. Replace example() by your own
// data. Sizes choose among the buckets of a package that has some.
#include "dmlprep_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using dmlprep::Type;

namespace {

std::uint16_t half(float value) {  // for values of example(): finite, 0 or at least 2^-14
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value == 0)
        return 0;
    const std::uint32_t sign = bits >> 16 & 0x8000, rest = (bits & 0x7FFFFFFF) - (112u << 23);
    return static_cast<std::uint16_t>(sign | (rest + 0xFFF + (rest >> 13 & 1)) >> 13);
}

double from_half(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

template <class Value>
void put(std::vector<std::uint8_t>& bytes, std::size_t index, Value value) {
    std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

template <class Value>
double get(const std::vector<std::uint8_t>& bytes, std::size_t index) {
    Value value;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return static_cast<double>(value);
}

// Whole numbers, little-endian.
void put_whole(std::vector<std::uint8_t>& bytes, std::size_t index, std::size_t width, std::int64_t value) {
    for (std::size_t byte = 0; byte < width; ++byte)
        bytes[index * width + byte] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> 8 * byte);
}

// The same numbers in the sample of each language, in the range that the contract knows. A free dimension gets size 1.
dmlprep::Tensor example(const dmlprep::TensorInfo& info) {
    dmlprep::Tensor tensor{info.name, info.type, info.shape, {}};
    std::size_t count = 1;
    for (std::int64_t& size : tensor.shape) {
        size = std::max<std::int64_t>(size, size < 0 ? 1 : 0);
        count *= static_cast<std::size_t>(size);
    }
    const std::size_t width = dmlprep::size_of(info.type);
    const double low = info.has_range ? info.low : 0, high = info.has_range ? info.high : 1;
    const auto first = static_cast<std::int64_t>(low), numbers = static_cast<std::int64_t>(high - low) + 1;
    tensor.bytes.resize(count * width);
    for (std::size_t i = 0; i < count; ++i) {
        const double real = low + static_cast<double>(i * 37 % 101) / 101 * (high - low);
        if (info.type == Type::float32)
            put(tensor.bytes, i, static_cast<float>(real));
        else if (info.type == Type::float64)
            put(tensor.bytes, i, real);
        else if (info.type == Type::float16)
            put(tensor.bytes, i, half(static_cast<float>(real)));
        else  // 0 to 255 (Knuth's multiplicative hash)
            put_whole(tensor.bytes, i, width,
                      info.has_range ? first + static_cast<std::int64_t>(static_cast<std::uint32_t>(i) * 2654435761u >> 24) % numbers
                                     : static_cast<std::int64_t>(i % 2));
    }
    return tensor;
}

double element(const dmlprep::Tensor& tensor, std::size_t i) {
    switch (tensor.type) {
    case Type::float16: return from_half(static_cast<std::uint16_t>(get<std::uint16_t>(tensor.bytes, i)));
    case Type::float32: return get<float>(tensor.bytes, i);
    case Type::float64: return get<double>(tensor.bytes, i);
    case Type::int8: return get<std::int8_t>(tensor.bytes, i);
    case Type::int16: return get<std::int16_t>(tensor.bytes, i);
    case Type::int32: return get<std::int32_t>(tensor.bytes, i);
    case Type::int64: return get<std::int64_t>(tensor.bytes, i);
    case Type::uint16: return get<std::uint16_t>(tensor.bytes, i);
    case Type::uint32: return get<std::uint32_t>(tensor.bytes, i);
    case Type::uint64: return get<std::uint64_t>(tensor.bytes, i);
    default: return get<std::uint8_t>(tensor.bytes, i);
    }
}

int failed(const dmlprep::Status& status) {
    std::fprintf(stderr, "error %d: %s\n", static_cast<int>(status.code), status.message.c_str());
    return 1;
}

}  // namespace

int main(int count, char** arguments) {
    dmlprep::Options options;
    std::vector<std::string> words;
    for (const std::string& word : std::vector<std::string>(arguments + std::min(count, 1), arguments + count))
        if (const std::size_t at = word.find('='); at != std::string::npos)
            options.sizes[word.substr(0, at)] = std::atoll(word.c_str() + at + 1);
        else
            words.push_back(word);
    const std::string device = words.size() > 1 ? words[1] : "dml", adapter = words.size() > 2 ? words[2] : "0";
    options.device = device == "cpu"          ? dmlprep::Device::cpu
                     : device == "dml-or-cpu" ? dmlprep::Device::directml_or_cpu
                                              : dmlprep::Device::directml;
    if (adapter == "high_performance")
        options.preference = dmlprep::Preference::high_performance;
    else if (adapter == "minimum_power")
        options.preference = dmlprep::Preference::minimum_power;
    else if (adapter.find_first_not_of("0123456789") == std::string::npos)
        options.adapter = std::atoi(adapter.c_str());
    else
        options.adapter_name = adapter;
    std::unique_ptr<dmlprep::Model> model;
    if (dmlprep::Status status = dmlprep::Model::load(words.empty() ? "." : words[0], options, model); !status)
        return failed(status);
    std::printf("device %s\n", model->device() == dmlprep::Device::cpu ? "cpu" : "dml");
    if (!model->bucket().empty()) {
        std::string padding;
        for (const auto& [name, missing] : model->padding())
            padding += " " + name + "=" + std::to_string(missing);
        std::printf("bucket %s, padding%s\n", model->bucket().c_str(), padding.empty() ? " none" : padding.c_str());
    }
    if (!model->notice().empty())
        std::printf("%s\n", model->notice().c_str());
    std::vector<dmlprep::Tensor> inputs, outputs;
    for (const dmlprep::TensorInfo& info : model->inputs())
        inputs.push_back(example(info));
    if (dmlprep::Status status = model->run(inputs, outputs); !status)
        return failed(status);
    for (const dmlprep::Tensor& one : outputs) {
        std::string shape;
        for (std::int64_t size : one.shape)
            shape += (shape.empty() ? "" : "x") + std::to_string(size);
        std::printf("%s %s", one.name.c_str(), shape.c_str());
        const std::size_t elements = one.bytes.size() / std::max<std::size_t>(dmlprep::size_of(one.type), 1);
        for (std::size_t i = 0; i < std::min<std::size_t>(elements, 8); ++i)
            std::printf(" %.6f", element(one, i));
        std::printf("\n");
    }
    return 0;
}

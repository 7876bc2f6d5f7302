// The loader's reading of model.json: JSON, SHA-256, types and buckets. Link with bcrypt.
#include "dmlprep_model_parts.h"

#include <bcrypt.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace dmlprep::detail {

void fail(Code code, std::string message) { throw Error({code, std::move(message), {}}); }

void damaged(const std::string& file, const std::string& what) {
    throw Error({Code::package_damaged, file + " " + what + ": repair the installation", file});
}

std::wstring wide(const std::string& text) {
    const int length = MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), nullptr, 0);
    std::wstring found(static_cast<std::size_t>(length), L'\0');
    MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), found.data(), length);
    return found;
}

std::string narrow(const wchar_t* text) {
    const int length = WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
    std::string found(static_cast<std::size_t>(std::max(length, 1)), '\0');
    WideCharToMultiByte(CP_UTF8, 0, text, -1, found.data(), length, nullptr, nullptr);
    found.resize(found.size() - 1);
    return found;
}

// ---- JSON: as much of it as a contract has ----

const Json& Json::operator[](const char* name) const {
    for (const auto& member : members)
        if (member.first == name)
            return member.second;
    damaged(contract_name, std::string("has no ") + name);
}

const Json& Json::or_null(const char* name) const noexcept {
    static const Json nothing;
    for (const auto& member : members)
        if (member.first == name)
            return member.second;
    return nothing;
}

namespace {

class JsonReader {
public:
    explicit JsonReader(const std::string& text) : at_(text.data()), end_(text.data() + text.size()) {}

    Json document() {
        Json found = value(0);
        if (peek() != 0)
            bad();
        return found;
    }

private:
    static constexpr int deepest = 32;

    [[noreturn]] static void bad() { damaged(contract_name, "is not JSON"); }

    char peek() {
        while (at_ < end_ && std::strchr(" \t\r\n", *at_))
            ++at_;
        return at_ < end_ ? *at_ : 0;
    }

    bool taken(char wanted) {
        if (peek() != wanted)
            return false;
        ++at_;
        return true;
    }

    bool word(const char* wanted) {
        const std::size_t length = std::strlen(wanted);
        if (static_cast<std::size_t>(end_ - at_) < length || std::strncmp(at_, wanted, length) != 0)
            return false;
        at_ += length;
        return true;
    }

    Json value(int depth) {
        Json found;
        if (depth > deepest)
            bad();
        const char first = peek();
        if (first == '{' || first == '[') {
            ++at_;
            const char last = first == '{' ? '}' : ']';
            found.kind = first == '{' ? Json::object : Json::list;
            while (!taken(last)) {
                if ((found.members.size() || found.items.size()) && !taken(','))
                    bad();
                if (first == '{') {
                    peek();
                    std::string name = quoted();
                    if (!taken(':'))
                        bad();
                    found.members.emplace_back(std::move(name), value(depth + 1));
                } else {
                    found.items.push_back(value(depth + 1));
                }
            }
        } else if (first == '"') {
            found.kind = Json::text;
            found.string = quoted();
        } else if (word("true") || word("false")) {
            found.kind = Json::boolean;
            found.value = first == 't';
        } else if (!word("null")) {
            found.kind = Json::number;
            const std::string digits(at_, std::find_if(at_, end_, [](char c) { return !std::strchr("+-.0123456789eE", c); }));
            char* rest = nullptr;
            found.value = std::strtod(digits.c_str(), &rest);
            if (digits.empty() || *rest)
                bad();
            at_ += digits.size();
        }
        return found;
    }

    unsigned hex4() {
        unsigned found = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            if (at_ >= end_ || !std::isxdigit(static_cast<unsigned char>(*at_)))
                bad();
            found = found * 16 + static_cast<unsigned>(std::isdigit(static_cast<unsigned char>(*at_)) ? *at_ - '0' : (*at_ | 32) - 'a' + 10);
        }
        return found;
    }

    std::string quoted() {
        std::string found;
        if (at_ >= end_ || *at_++ != '"')
            bad();
        while (true) {
            if (at_ >= end_)
                bad();
            const char c = *at_++;
            if (c == '"')
                return found;
            if (c != '\\') {
                found += c;
                continue;
            }
            if (at_ >= end_)
                bad();
            const char escape = *at_++;
            static constexpr char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            if (const char* place = std::strchr(from, escape); place && escape) {
                found += to[place - from];
            } else if (escape == 'u') {
                unsigned point = hex4();
                if (point >= 0xD800 && point < 0xDC00 && word("\\u"))
                    point = 0x10000 + ((point - 0xD800) << 10) + (hex4() - 0xDC00);
                append_utf8(found, point);
            } else {
                bad();
            }
        }
    }

    static void append_utf8(std::string& text, unsigned point) {
        if (point < 0x80) {
            text += static_cast<char>(point);
            return;
        }
        const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
        text += static_cast<char>((0xF00 >> more & 0xFF) | point >> 6 * more);
        for (int i = more - 1; i >= 0; --i)
            text += static_cast<char>(0x80 | (point >> 6 * i & 0x3F));
    }

    const char* at_;
    const char* end_;
};

}  // namespace

Json parse_json(const std::string& text) { return JsonReader(text).document(); }

// ---- SHA-256 ----

Sha256::Sha256() {
    if (BCryptOpenAlgorithmProvider(&algorithm_, BCRYPT_SHA256_ALGORITHM, nullptr, 0) < 0 ||
        BCryptCreateHash(algorithm_, &hash_, nullptr, 0, nullptr, 0, 0) < 0)
        fail(Code::failed, "Windows has no SHA-256");
}

Sha256::~Sha256() {
    if (hash_)
        BCryptDestroyHash(hash_);
    if (algorithm_)
        BCryptCloseAlgorithmProvider(algorithm_, 0);
}

void Sha256::add(const void* data, std::size_t size) {
    auto* at = static_cast<const unsigned char*>(data);
    while (size) {
        const ULONG piece = static_cast<ULONG>(std::min<std::size_t>(size, 1u << 30));
        if (BCryptHashData(hash_, const_cast<PUCHAR>(at), piece, 0) < 0)
            fail(Code::failed, "SHA-256 failed");
        at += piece;
        size -= piece;
    }
}

std::string Sha256::hex() {
    unsigned char raw[32];
    if (BCryptFinishHash(hash_, raw, sizeof raw, 0) < 0)
        fail(Code::failed, "SHA-256 failed");
    std::string digits;
    for (unsigned char byte : raw) {
        digits += "0123456789abcdef"[byte >> 4];
        digits += "0123456789abcdef"[byte & 15];
    }
    return digits;
}

// ---- Types ----

namespace {

constexpr TypeRow types[] = {
    {"float16", Type::float16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2},
    {"float32", Type::float32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4},
    {"float64", Type::float64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8},
    {"int8", Type::int8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1},
    {"int16", Type::int16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, 2},
    {"int32", Type::int32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4},
    {"int64", Type::int64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8},
    {"uint8", Type::uint8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1},
    {"uint16", Type::uint16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, 2},
    {"uint32", Type::uint32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, 4},
    {"uint64", Type::uint64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, 8},
    {"bool", Type::boolean, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1},
};

}  // namespace

const TypeRow& row_of(Type type) {
    for (const TypeRow& row : types)
        if (row.type == type)
            return row;
    fail(Code::bad_input, "a tensor has no element type");
}

TensorInfo tensor_info(const Json& one) {
    TensorInfo found;
    found.name = one["name"].string;
    for (const TypeRow& row : types)
        if (one["type"].string == row.name)
            found.type = row.type;
    if (found.type == Type::none)
        fail(Code::failed, "'" + found.name + "' is " + one["type"].string + ", which this loader does not support");
    for (const Json& size : one["shape"].items) {
        found.shape.push_back(size.kind == Json::number ? static_cast<std::int64_t>(size.value) : -1);
        found.free_names.push_back(size.kind == Json::number ? std::string() : size.string);
    }
    found.layout = one["layout"].string;
    found.meaning = one.or_null("meaning").string;
    found.colour = one.or_null("picture").or_null("colour").string;
    const std::vector<Json>& range = one.or_null("range").items;
    found.has_range = range.size() == 2;
    if (found.has_range) {
        found.low = range[0].value;
        found.high = range[1].value;
    }
    found.bytes = static_cast<std::size_t>(one["bytes"].value);
    found.gpu_bytes = static_cast<std::size_t>(one["gpu_bytes"].value);
    return found;
}

std::string shape_text(const Shape& shape) {
    std::string found;
    for (std::int64_t size : shape)
        found += (found.empty() ? "" : " x ") + (size < 0 ? std::string("?") : std::to_string(size));
    return found.empty() ? "a scalar" : found;
}

// ---- Buckets ----

namespace {

double elements(const Json& bucket) {
    double found = 1;
    for (const auto& [name, size] : bucket["sizes"].members)
        found *= size.value;
    return found;
}

}  // namespace

void no_buckets() {
    fail(Code::bad_input, "the package has no buckets: its model has the sizes of its contract");
}

// The bucket of exactly these sizes; else, of those that are as large in every dimension, that of fewest elements.
const Json& choose(const std::vector<Json>& buckets, const Sizes& sizes, Choice& choice) {
    if (buckets.empty())
        no_buckets();
    std::vector<std::string> known, asked, names;
    for (const auto& [name, size] : buckets.front()["sizes"].members)
        known.push_back(name);
    for (const auto& [name, size] : sizes)
        if (std::count(known.begin(), known.end(), name) == 0)
            fail(Code::bad_input, "the buckets have no dimension '" + name + "'; they have: " + listed(known));
    for (const std::string& name : known)
        if (!sizes.count(name))
            fail(Code::bad_input, "the size of '" + name + "' is missing: the buckets differ in " + listed(known));
    for (const std::string& name : known) {
        asked.push_back(name + "=" + std::to_string(sizes.at(name)));
        if (sizes.at(name) < 1)
            fail(Code::bad_input, "the size of '" + name + "' is " + std::to_string(sizes.at(name)) +
                                      ", but must be a whole number of at least 1");
    }
    const Json* found = nullptr;
    for (const Json& one : buckets) {
        names.push_back(one["name"].string);
        const bool room = std::all_of(known.begin(), known.end(), [&](const std::string& name) {
            return one["sizes"][name.c_str()].value >= static_cast<double>(sizes.at(name));
        });
        if (room && (!found || elements(one) < elements(*found)))
            found = &one;
    }
    if (!found)
        fail(Code::bad_input, "no bucket has room for " + listed(asked) + "; there are: " + listed(names));
    choice = {(*found)["name"].string, {}, {}};
    for (const std::string& name : known) {
        const auto size = static_cast<std::int64_t>((*found)["sizes"][name.c_str()].value);
        choice.sizes[name] = size;
        if (size > sizes.at(name))
            choice.padding[name] = size - sizes.at(name);
    }
    return *found;
}

}  // namespace dmlprep::detail

namespace dmlprep {

std::size_t size_of(Type type) noexcept {
    for (const detail::TypeRow& row : detail::types)
        if (row.type == type)
            return row.size;
    return 0;
}

Half::Half(float value) noexcept {
    std::uint32_t number;
    std::memcpy(&number, &value, sizeof number);
    const std::uint32_t sign = number >> 16 & 0x8000;
    number &= 0x7FFFFFFF;
    std::uint32_t rest;
    if (number > 0x7F800000)
        rest = 0x7E00;  // not a number
    else if (number >= 0x477FF000)
        rest = 0x7C00;  // from 65520 on: infinity
    else if (number < 0x38800000)
        rest = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(std::fabs(value), 24)));  // below 2^-14: steps of 2^-24
    else
        rest = (number - (112u << 23) + 0xFFF + (number >> 13 & 1)) >> 13;
    bits = static_cast<std::uint16_t>(sign | rest);
}

Half::operator float() const noexcept {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * static_cast<float>(exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

}  // namespace dmlprep

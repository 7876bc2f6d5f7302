/* Tensors between files of the exchange folder and ONNX Runtime. */
#include "values.h"
#include "wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(call) \
    do \
    { \
        status *failed = (call); \
        if (failed) \
            return failed; \
    } while (0)

static const struct
{
    const char *name;
    size_t size; /* bytes of one element */
} elements[] = {
    {"undefined", 0}, {"float32", 4}, {"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"int32", 4},
    {"int64", 8}, {"string", 0}, {"bool", 1}, {"float16", 2}, {"float64", 8}, {"uint32", 4}, {"uint64", 8},
    {"complex64", 8}, {"complex128", 16}, {"bfloat16", 2}, {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1}, {"float8_e5m2fnuz", 1},
};
enum { ELEMENT_COUNT = sizeof(elements) / sizeof(elements[0]) };

const char *element_name(int element)
{
    return element >= 0 && element < ELEMENT_COUNT ? elements[element].name : "unknown";
}

int element_of(const char *name)
{
    for (int i = 1; i < ELEMENT_COUNT; i++)
        if (!strcmp(name, elements[i].name))
            return i;
    return -1;
}

status *say_type(const type_info *info)
{
    const tensor_info *tensor;
    const char **names;
    int64_t *dims;
    size_t rank;
    int kind, element;

    CHECK(ort.GetOnnxTypeFromTypeInfo(info, &kind));
    if (kind != TYPE_TENSOR)
    {
        say_field(kind == TYPE_SEQUENCE ? "seq" : "other");
        return NULL;
    }
    CHECK(ort.CastTypeInfoToTensorInfo(info, &tensor));
    CHECK(ort.GetTensorElementType(tensor, &element));
    CHECK(ort.GetDimensionsCount(tensor, &rank));
    say_field(element_name(element));
    if (!rank)
        return NULL;
    dims = calloc(rank, sizeof(*dims));
    names = calloc(rank, sizeof(*names));
    ort.GetDimensions(tensor, dims, rank);
    ort.GetSymbolicDimensions(tensor, names, rank);
    for (size_t i = 0; i < rank; i++)
    {
        char text[300];
        if (dims[i] >= 0)
            say_number(dims[i]);
        else
        {
            snprintf(text, sizeof(text), "$%s", names[i] ? names[i] : "");
            say_field(names[i] && *names[i] ? text : "?");
        }
    }
    free(dims);
    free(names);
    return NULL;
}

void value_unmap(struct mapping *mapping)
{
    if (mapping->data)
        munmap(mapping->data, mapping->size);
    mapping->data = NULL;
}

static status *read_strings(struct mapping *mapping, const int64_t *dims, int rank, value **result)
{
    const char **texts, *next = mapping->data, *end = next + mapping->size;
    allocator *memory;
    size_t count = 1, found = 0;
    status *failed;

    for (int i = 0; i < rank; i++)
        count *= (size_t)dims[i];
    CHECK(ort.GetAllocatorWithDefaultOptions(&memory));
    CHECK(ort.CreateTensorAsOrtValue(memory, dims, (size_t)rank, ELEMENT_STRING, result));
    texts = calloc(count + 1, sizeof(*texts));
    for (; found < count && next < end; next += strlen(next) + 1)
        texts[found++] = next;
    failed = ort.FillStringTensor(*result, texts, found);
    free(texts);
    return failed;
}

status *value_read(const char *path, int element, const int64_t *dims, int rank, value **result, struct mapping *mapping)
{
    static memory_info *cpu;
    static char empty[16];
    struct stat about;
    int file = open(path, O_RDONLY);

    *result = NULL;
    mapping->data = NULL;
    mapping->size = 0;
    if (file >= 0 && !fstat(file, &about) && about.st_size)
    {
        mapping->size = (size_t)about.st_size;
        mapping->data = mmap(NULL, mapping->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        if (mapping->data == MAP_FAILED)
            mapping->data = NULL;
    }
    if (file >= 0)
        close(file);
    if (!cpu)
        CHECK(ort.CreateCpuMemoryInfo(0, 0, &cpu)); /* OrtDeviceAllocator, OrtMemTypeDefault */
    if (element == ELEMENT_STRING)
        return read_strings(mapping, dims, rank, result);
    return ort.CreateTensorWithDataAsOrtValue(
            cpu, mapping->data ? mapping->data : empty, mapping->size, dims, (size_t)rank, element, result);
}

static int write_all(const char *path, const void *data, size_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    size_t done = 0;

    while (file >= 0 && done < size)
    {
        ssize_t written = write(file, (const char *)data + done, size - done);
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    if (file >= 0)
        close(file);
    return file >= 0 && done == size;
}

static status *write_strings(const char *path, const value *result, size_t count)
{
    size_t length, *offsets = calloc(count + 1, sizeof(*offsets));
    FILE *file = fopen(path, "wb");
    status *failed;
    char *text;

    if ((failed = ort.GetStringTensorDataLength(result, &length)))
        return failed;
    text = malloc(length + 1);
    failed = ort.GetStringTensorContent(result, text, length, offsets, count);
    offsets[count] = length;
    for (size_t i = 0; !failed && file && i < count; i++)
    {
        fwrite(text + offsets[i], 1, offsets[i + 1] - offsets[i], file);
        fputc(0, file);
    }
    if (file)
        fclose(file);
    free(text);
    free(offsets);
    return failed;
}

static status *say_tensor(const char *name, const value *result, const char *exchange)
{
    static unsigned int files;
    tensor_info *info;
    char file[32], path[600];
    int64_t *dims;
    size_t rank, count;
    int element;
    void *data;

    CHECK(ort.GetTensorTypeAndShape(result, &info));
    CHECK(ort.GetTensorElementType(info, &element));
    CHECK(ort.GetDimensionsCount(info, &rank));
    CHECK(ort.GetTensorShapeElementCount(info, &count));
    dims = calloc(rank + 1, sizeof(*dims));
    CHECK(ort.GetDimensions(info, dims, rank));
    ort.ReleaseTensorTypeAndShapeInfo(info);

    snprintf(file, sizeof(file), "out%u", ++files);
    snprintf(path, sizeof(path), "%s/%s", exchange, file);
    if (element == ELEMENT_STRING)
        CHECK(write_strings(path, result, count));
    else
    {
        CHECK(ort.GetTensorMutableData((value *)result, &data));
        if (!write_all(path, data, element < ELEMENT_COUNT ? count * elements[element].size : 0))
            fprintf(stderr, "%s cannot be written\n", path); /* the reader sees that the size is wrong */
    }
    say_field("value");
    say_field(name);
    say_field(element_name(element));
    say_field(file);
    for (size_t i = 0; i < rank; i++)
        say_number(dims[i]);
    say_end();
    free(dims);
    return NULL;
}

status *value_say(const char *name, const value *result, const char *exchange)
{
    allocator *memory;
    size_t count;
    int kind, present = 1;
    value *item;
    char text[32];

    if (result)
        CHECK(ort.HasValue(result, &present));
    if (!result || !present)
    {
        say("none", name, NULL);
        return NULL;
    }
    CHECK(ort.GetValueType(result, &kind));
    if (kind == TYPE_TENSOR)
        return say_tensor(name, result, exchange);
    CHECK(ort.GetAllocatorWithDefaultOptions(&memory));
    CHECK(ort.GetValueCount(result, &count));
    snprintf(text, sizeof(text), "%zu", count);
    say("sequence", name, text, NULL);
    for (size_t i = 0; i < count; i++)
    {
        CHECK(ort.GetValue(result, (int)i, memory, &item));
        CHECK(say_tensor(name, item, exchange));
        ort.ReleaseValue(item);
    }
    return NULL;
}

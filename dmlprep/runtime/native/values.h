/* Tensors between files of the exchange folder and ONNX Runtime. */
#ifndef DMLPREP_VALUES_H
#define DMLPREP_VALUES_H

#include "ort.h"

/* numpy's name of an element type, and back; -1 for a name that is none. */
const char *element_name(int element);
int element_of(const char *name);

/* The type of a graph input or output: "TYPE DIM ...". */
status *say_type(const type_info *info);

/* A value made of a file. The file stays mapped until value_unmap. */
struct mapping
{
    void *data;
    size_t size;
};
status *value_read(const char *path, int element, const int64_t *dims, int rank, value **result, struct mapping *mapping);
void value_unmap(struct mapping *mapping);

/* Says an output and writes its elements to files. */
status *value_say(const char *name, const value *result, const char *exchange);

#endif

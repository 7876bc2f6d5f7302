/* The part of ONNX Runtime's C API that the host program uses.
 *
 * The API is a table of functions to which every release only appends (onnxruntime_c_api.h: "this struct is versioned,
 * new functions go to the end"), so that one program serves all releases: a function is named here by its place in the
 * table. The places were taken from the header of 1.23 and tried on the library of 1.24.4; those of the graph assignment
 * functions, which are new in 1.24, on the library alone.
 */
#ifndef DMLPREP_ORT_H
#define DMLPREP_ORT_H

#include "windef.h"
#include "winbase.h"
#include <stdint.h>

typedef struct status status;   /* OrtStatus, NULL when all went well */
typedef struct environment environment;
typedef struct session session;
typedef struct options options; /* OrtSessionOptions */
typedef struct value value;
typedef struct type_info type_info;
typedef struct tensor_info tensor_info;
typedef struct memory_info memory_info;
typedef struct allocator allocator;
typedef struct binding binding; /* OrtIoBinding */
typedef struct part part; /* OrtEpAssignedSubgraph */
typedef struct node node; /* OrtEpAssignedNode */

typedef void(WINAPI *log_function)(void *, int severity, const char *category, const char *id, const char *place, const char *text);

enum { TYPE_TENSOR = 1, TYPE_SEQUENCE = 2 }; /* ONNXType */
enum { ELEMENT_STRING = 8 };                 /* ONNXTensorElementDataType */

/* place, result, name, parameters */
#define ORT_FUNCTIONS(F) \
    F(2, const char *, GetErrorMessage, (const status *)) \
    F(4, status *, CreateEnvWithCustomLogger, (log_function, void *, int, const char *, environment **)) \
    F(7, status *, CreateSession, (const environment *, const WCHAR *, const options *, session **)) \
    F(9, status *, Run, (session *, const void *, const char *const *, const value *const *, size_t, const char *const *, size_t, value **)) \
    F(10, status *, CreateSessionOptions, (options **)) \
    F(13, status *, SetSessionExecutionMode, (options *, int)) \
    F(14, status *, EnableProfiling, (options *, const WCHAR *)) \
    F(17, status *, DisableMemPattern, (options *)) \
    F(22, status *, SetSessionLogSeverityLevel, (options *, int)) \
    F(23, status *, SetSessionGraphOptimizationLevel, (options *, int)) \
    F(24, status *, SetIntraOpNumThreads, (options *, int)) \
    F(30, status *, SessionGetInputCount, (const session *, size_t *)) \
    F(31, status *, SessionGetOutputCount, (const session *, size_t *)) \
    F(33, status *, SessionGetInputTypeInfo, (const session *, size_t, type_info **)) \
    F(34, status *, SessionGetOutputTypeInfo, (const session *, size_t, type_info **)) \
    F(36, status *, SessionGetInputName, (const session *, size_t, allocator *, char **)) \
    F(37, status *, SessionGetOutputName, (const session *, size_t, allocator *, char **)) \
    F(48, status *, CreateTensorAsOrtValue, (allocator *, const int64_t *, size_t, int, value **)) \
    F(49, status *, CreateTensorWithDataAsOrtValue, (const memory_info *, void *, size_t, const int64_t *, size_t, int, value **)) \
    F(51, status *, GetTensorMutableData, (value *, void **)) \
    F(52, status *, FillStringTensor, (value *, const char *const *, size_t)) \
    F(53, status *, GetStringTensorDataLength, (const value *, size_t *)) \
    F(54, status *, GetStringTensorContent, (const value *, void *, size_t, size_t *, size_t)) \
    F(55, status *, CastTypeInfoToTensorInfo, (const type_info *, const tensor_info **)) \
    F(56, status *, GetOnnxTypeFromTypeInfo, (const type_info *, int *)) \
    F(60, status *, GetTensorElementType, (const tensor_info *, int *)) \
    F(61, status *, GetDimensionsCount, (const tensor_info *, size_t *)) \
    F(62, status *, GetDimensions, (const tensor_info *, int64_t *, size_t)) \
    F(63, status *, GetSymbolicDimensions, (const tensor_info *, const char **, size_t)) \
    F(64, status *, GetTensorShapeElementCount, (const tensor_info *, size_t *)) \
    F(65, status *, GetTensorTypeAndShape, (const value *, tensor_info **)) \
    F(67, status *, GetValueType, (const value *, int *)) \
    F(68, status *, CreateMemoryInfo, (const char *, int, int, int, memory_info **)) \
    F(69, status *, CreateCpuMemoryInfo, (int, int, memory_info **)) \
    F(76, status *, AllocatorFree, (allocator *, void *)) \
    F(78, status *, GetAllocatorWithDefaultOptions, (allocator **)) \
    F(79, status *, AddFreeDimensionOverride, (options *, const char *, int64_t)) \
    F(80, status *, GetValue, (const value *, int, allocator *, value **)) \
    F(81, status *, GetValueCount, (const value *, size_t *)) \
    F(82, status *, CreateValue, (const value *const *, size_t, int, value **)) \
    F(93, void, ReleaseStatus, (status *)) \
    F(94, void, ReleaseMemoryInfo, (memory_info *)) \
    F(95, void, ReleaseSession, (session *)) \
    F(96, void, ReleaseValue, (value *)) \
    F(98, void, ReleaseTypeInfo, (type_info *)) \
    F(99, void, ReleaseTensorTypeAndShapeInfo, (tensor_info *)) \
    F(100, void, ReleaseSessionOptions, (options *)) \
    F(110, status *, SessionEndProfiling, (session *, allocator *, char **)) \
    F(124, status *, AddFreeDimensionOverrideByName, (options *, const char *, int64_t)) \
    F(130, status *, AddSessionConfigEntry, (options *, const char *, const char *)) \
    F(131, status *, CreateAllocator, (const session *, const memory_info *, allocator **)) \
    F(132, void, ReleaseAllocator, (allocator *)) \
    F(133, status *, RunWithBinding, (session *, const void *, const binding *)) \
    F(134, status *, CreateIoBinding, (session *, binding **)) \
    F(135, void, ReleaseIoBinding, (binding *)) \
    F(136, status *, BindInput, (binding *, const char *, const value *)) \
    F(137, status *, BindOutput, (binding *, const char *, const value *)) \
    F(138, status *, BindOutputToDevice, (binding *, const char *, const memory_info *)) \
    F(140, status *, GetBoundOutputValues, (const binding *, allocator *, value ***, size_t *)) \
    F(192, status *, HasValue, (const value *, int *)) \
    F(195, status *, GetExecutionProviderApi, (const char *, uint32_t, const void **)) \
    F(203, status *, SynchronizeBoundOutputs, (binding *))

/* New in 1.24. */
#define ORT_FUNCTIONS_24(F) \
    F(407, status *, Session_GetEpGraphAssignmentInfo, (const session *, const part *const **, size_t *)) \
    F(408, status *, EpAssignedSubgraph_GetEpName, (const part *, const char **)) \
    F(409, status *, EpAssignedSubgraph_GetNodes, (const part *, const node *const **, size_t *)) \
    F(410, status *, EpAssignedNode_GetName, (const node *, const char **)) \
    F(411, status *, EpAssignedNode_GetDomain, (const node *, const char **)) \
    F(412, status *, EpAssignedNode_GetOperatorType, (const node *, const char **))

#define DECLARE(place, result, name, parameters) result(WINAPI *name) parameters;
struct ort
{
    ORT_FUNCTIONS(DECLARE)
    ORT_FUNCTIONS_24(DECLARE)
};
#undef DECLARE

struct ort_base
{
    const void *(WINAPI *get_api)(uint32_t version);
    const char *(WINAPI *get_version)(void);
};

/* OrtDmlApi, dml_provider_factory.h; the second function and the rest are not used. */
struct ort_dml
{
    status *(WINAPI *append)(options *, int device_id);
};

/* Version 11 of the table is the least that has all functions above; every later release still serves it. */
enum { ORT_API_LEAST = 11, ORT_API_GRAPH_ASSIGNMENT = 24 };

extern struct ort ort;

#endif

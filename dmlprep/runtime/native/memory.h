/* How much memory of a Direct3D 12 device is held. */
#ifndef DMLPREP_MEMORY_H
#define DMLPREP_MEMORY_H

#include "windef.h"
#include "winbase.h"
#include "d3d12.h"

/* Counts what this device allocates from here on. FALSE when its table of functions cannot be changed. */
BOOL memory_watch(ID3D12Device5 *device);

#endif

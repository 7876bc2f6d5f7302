/* What the host can say of the libraries and of the device. */
#ifndef DMLPREP_DEVICE_H
#define DMLPREP_DEVICE_H

#include "windef.h"

/* Says "device KEY VALUE" for DirectML's version, the adapter and the traits of Direct3D 12. */
void say_device(HMODULE directml);

#endif

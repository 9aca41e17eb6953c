/* The version of libdro. The build reads it from here. Stable. */
#ifndef DRO_VERSION_H
#define DRO_VERSION_H

#define DRO_VERSION_MAJOR 0
#define DRO_VERSION_MINOR 1
#define DRO_VERSION_PATCH 0

#endif

/* Where the warden leaves two descriptors for userfault_preload.c, which is C: just below RLIMIT_NOFILE, out of the way of all others. */
#pragma once

#define SPACE_USERFAULT_SOCKET 1022
#define SPACE_USERFAULT_DEVICE 1023

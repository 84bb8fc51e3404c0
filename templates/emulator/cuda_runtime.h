// Stand-in for CUDA's own header of this name, found first when a generated file is built for the CPU.
#pragma once
#include "tilec_emulator.h"

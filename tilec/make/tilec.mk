# Rules for GNU make (4.2 or newer) that turn tile kernels in Python into CUDA files, headers and machine code.
#
#     TILEC_ARCH := sm_90                      # set what you want to change first
#     include $(shell tilec --make-include)
#     program: main.o gemm.o ; nvcc $^ -o $@
#     main.o: gemm.h
#
# gives   %.cu and %.h   from %.py, by one run of tilec
#         %.cubin        from %.cu, by nvcc
#
# Every kernel is built again when it, a module that it imports, pyproject.toml, a file of -D @FILE, tilec itself or one of the
# variables below has changed, and only then. A kernel's own options go into TILECFLAGS_name, set before the include:
#     TILECFLAGS_gemm := -D block_M=64

TILEC ?= tilec
TILECFLAGS ?=
# Architecture to write for and to compile %.cubin for.
TILEC_ARCH ?= sm_80
NVCC ?= nvcc
NVCCFLAGS ?= -std=c++17
# Folder of the outputs, with its slash, such as build/; empty: beside the sources.
TILEC_OUT ?=
# Remembers the variables of the last build.
TILEC_STAMP ?= $(TILEC_OUT).tilec.stamp

tilec_goal := $(.DEFAULT_GOAL)  # nothing here becomes the goal of a plain `make`

# Which pyproject.toml there are: one that appears may be the nearest to a kernel, and no dependency file can know it.
tilec_up := .. ../.. ../../.. ../../../.. ../../../../.. ../../../../../..
tilec_projects := $(wildcard $(patsubst %,%/pyproject.toml,. * */* */*/* $(tilec_up)))

# Written while make reads this file, and only when something differs: the stamp's age then says since when.
tilec_settings := $(TILEC) $(TILEC_ARCH) $(NVCC) $(NVCCFLAGS) $(tilec_projects) \
  $(foreach v,$(sort $(filter TILECFLAGS%,$(.VARIABLES))),$(v)=$($(v)))
ifneq ($(strip $(file <$(TILEC_STAMP))),$(strip $(tilec_settings)))
  $(if $(TILEC_OUT),$(shell mkdir -p '$(TILEC_OUT)'))
  $(file >$(TILEC_STAMP),$(tilec_settings))
endif

$(TILEC_STAMP): ;

# One run writes both.
$(TILEC_OUT)%.cu $(TILEC_OUT)%.h: %.py $(TILEC_STAMP)
	@mkdir -p '$(@D)'
	$(TILEC) compile '$<' -q --arch $(TILEC_ARCH) $(TILECFLAGS) $(TILECFLAGS_$(*F)) -o '$(TILEC_OUT)$*.cu' --header '$(TILEC_OUT)$*.h' \
	  -MD -MP -MF '$(TILEC_OUT)$*.tilec.d' -MT '$(TILEC_OUT)$*.cu' -MT '$(TILEC_OUT)$*.h'

# Under another name first: a compilation that fails or is killed leaves nothing that looks finished.
$(TILEC_OUT)%.cubin: $(TILEC_OUT)%.cu $(TILEC_STAMP)
	$(NVCC) -cubin -arch=$(TILEC_ARCH) $(NVCCFLAGS) -o '$@.tmp' '$<' && mv '$@.tmp' '$@'

# The files between the Python and the objects are kept: people read them.
.PRECIOUS: $(TILEC_OUT)%.cu $(TILEC_OUT)%.h

tilec_known := $(foreach d,* */* */*/*,$(wildcard $(TILEC_OUT)$(d).tilec.d))
-include $(tilec_known)

# A kernel whose dependency file is lost is built again.
tilec_built := $(foreach d,* */* */*/*,$(wildcard $(TILEC_OUT)$(d).cu))
tilec_lost := $(foreach f,$(filter-out $(tilec_known:.tilec.d=.cu),$(tilec_built)),$(if $(wildcard $(f:$(TILEC_OUT)%.cu=%.py)),$(f)))
ifneq ($(tilec_lost),)
$(tilec_lost) $(tilec_lost:.cu=.h): tilec-lost-its-dependencies
.PHONY: tilec-lost-its-dependencies
endif
.DEFAULT_GOAL := $(strip $(tilec_goal))

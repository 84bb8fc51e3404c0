"""What each code of a diagnostic means: `tilec explain TL0312`. A catalogue.

TL01 Python, TL02 names and arguments, TL03 shapes, types and tiles, TL04 launches and targets, TL05 plans, TL09 faults of tilec.

    CODES["TL0314"] -> "`/` of two integers ..."
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, str] = MappingProxyType(
    {
        "TL0101": "The file is not valid Python, or a statement stands where Python does not allow it.",
        "TL0102": "Valid Python that tilec does not evaluate, such as `try`, `yield` or assignments to attributes. Kernels are read "
        "and never run: use functions, loops, conditions and the names of the language, and keep other code outside of kernels.",
        "TL0103": "The file cannot be read as text: it is missing, not UTF-8, too large, or holds zero bytes.",
        "TL0104": "Evaluating the file took too many steps or calls. A loop or a recursion on the host does not end, or is very long; "
        "inside of a kernel, T.serial makes a loop that runs on the device.",
        "TL0105": "A statement that only makes sense while compiling (return, raise, break out of a tile loop, an assertion) depends on "
        "something that is known at run time only.",
        "TL0106": "A Python value is changed inside of a loop or branch that runs on the device. The change would happen once, while "
        "compiling; use T.alloc_var or a tile for values that change at run time.",
        "TL0107": "A name is bound to different things on the two sides of a run-time branch, or changes its type in a run-time loop. "
        "Use T.alloc_var for a value that changes at run time.",
        "TL0108": "An operation on a Python value went wrong the way Python itself would say: a missing key, an index out of range, a "
        "wrong number of values to unpack.",
        "TL0109": "An imported module is not among what tilec reads. Modules beside the file or under -I are read; libraries are not.",
        "TL0110": "Brackets, operators or calls are nested more deeply than tilec reads. Split the expression.",
        "TL0111": "An assertion of the file fails, or the file raises an exception, with the values it was given.",
        "TL0201": "A name, or an attribute of a module, is not defined where it is used. The help line names the nearest known one.",
        "TL0202": "A call names an argument that the function does not have.",
        "TL0203": "A call has too many, too few or repeated arguments.",
        "TL0204": "A value, an option or a feature is known but not supported here; or a -D names nothing in the file.",
        "TL0205": "A part of the language stands outside of where it has a meaning: tiles outside of T.Kernel, block-wide statements "
        "inside of T.Parallel, a kernel that launches nothing.",
        "TL0206": "An argument has the wrong kind of value, such as a run-time value where one is needed that is known while compiling.",
        "TL0207": "A parameter of a kernel is not declared as a tensor or a scalar. Annotate it: `A: T.Tensor((M, K), T.float16)`.",
        "TL0208": "--arg or out_idx does not fit the parameters of the kernel.",
        "TL0209": "A kernel was left out, because a compile-time parameter of it has no value. Give one with -D.",
        "TL0210": "A note: which value a parameter took, and where it came from.",
        "TL0211": "Two kernels would have the same symbol in the CUDA file. Rename one, choose one with -k, or give --name.",
        "TL0212": "The file holds no kernel, or none of the name that was asked for, or a factory returns none.",
        "TL0213": "Host code needs a size that is only known at run time: in a branch, an assertion, the shape of a tile. Give it with -D.",
        "TL0221": "A note about a function without T.Kernel: the element type and shape that a tensor got, and why.",
        "TL0222": "A note about a function without T.Kernel: which sizes are arguments at run time. -D fixes one.",
        "TL0223": "A note about a function without T.Kernel: how its block indices were read.",
        "TL0224": "A note about a function without T.Kernel: the grid, from the number of tiles along each block index.",
        "TL0225": "A note about a function without T.Kernel: an accumulator that nothing writes before T.gemm starts at zero.",
        "TL0226": "A note about a function without T.Kernel: the number of threads is chosen by tilec.",
        "TL0230": "A tensor, an extent or the grid of a function without T.Kernel cannot be inferred, or two places contradict each "
        "other. Annotate the parameter, or give it with --arg C=float16[M,N] (names allowed).",
        "TL0301": "A value is used as something that it is not: a tile as a number, a region as an element.",
        "TL0302": "Not an element type, or a type that does not fit here.",
        "TL0303": "A number does not fit its type.",
        "TL0304": "A tensor or tile is indexed with the wrong number of indices.",
        "TL0305": "An index is known to lie outside of a tile.",
        "TL0306": "An index is not an integer.",
        "TL0307": "A slice has a step, or bounds that give no region.",
        "TL0308": "An assignment to a whole tile or to a slice; write elements in T.Parallel, or use T.copy and T.fill.",
        "TL0309": "The extent of a tile must be known while compiling. Give the names it depends on a value with -D.",
        "TL0310": "The extent of a tile or tensor is not possible: zero, negative or too large.",
        "TL0312": "Source and destination of a copy have different extents. Extents of 1 are left out when they are paired; a tensor "
        "indexed by single numbers takes the extents of the other side.",
        "TL0313": "A copy whose extents are known only at run time does not fit the tile on its other side.",
        "TL0314": "`/` of two integers. Write `//` for the quotient rounded down, or cast an operand to a float.",
        "TL0315": "An operator is not defined for these types.",
        "TL0316": "Arithmetic on literals went wrong: division by zero, a shift beyond the width.",
        "TL0317": "The element type has no such value, such as an infinity of float8_e4m3fn.",
        "TL0319": "Iterations of T.Parallel that update the same element run one after another; a reduction is faster.",
        "TL0320": "The operands of T.gemm do not fit each other. With op(a) M x K and op(b) K x N, the accumulator is M x N.",
        "TL0321": "T.gemm has no instruction for these element types, or none that accumulates in this type.",
        "TL0322": "A tile lies in another kind of memory than the statement needs, such as an operand of T.gemm in global memory.",
        "TL0324": "T.gemm_sp puts the two kept elements of each four back in their places and multiplies the dense tile.",
        "TL0323": "An argument of T.gemm has a value that it does not know.",
        "TL0325": "A warning: a tile is read before anything has written it. A new tile holds whatever was there before.",
        "TL0330": "A reduction over a dimension that the tile does not have, or into a tile of another shape.",
        "TL0331": "The reduction is not defined for this element type.",
        "TL0340": "The atomic operation is not supported on this element type.",
        "TL0341": "A vector of atomic additions cannot return old values.",
        "TL0342": "A buffer cannot be viewed under this shape or type: the bytes differ, or it has strides.",
        "TL0343": "The layout of a tensor in global memory does not give each element a place of its own.",
        "TL0401": "The grid, or the shared memory that a block needs, is more than the target has. Smaller tiles or fewer stages help.",
        "TL0402": "The number of threads of a block is missing, unknown while compiling, or not possible.",
        "TL0403": "num_stages is out of its range.",
        "TL0404": "T.Kernel inside of T.Kernel.",
        "TL0405": "A grid or the size of a buffer needs arithmetic that cannot be done before the launch.",
        "TL0407": "Clusters: cluster_dims does not fit the grid or is too large, the target has no clusters, or a block is named that "
        "the cluster does not have.",
        "TL0408": "A grid that is known to have no blocks: launching the kernel does nothing, as with an extent of 0 at run time.",
        "TL0501": "A remark of the planner: something was done in a slower or a different way, and why.",
        "TL0502": "Some threads take a branch in which all threads of the block must take part.",
        "TL0503": "float32 operands of T.gemm are multiplied as TF32; --fp32-gemm ieee multiplies in full float32.",
        "TL0504": "A remark of the planner: fewer versions of the tiles than num_stages asks for, or less prefetching, because the block "
        "would not fit otherwise.",
        "TL0505": "A remark of the planner: a kernel for Hopper takes the portable path, and why.",
        "TL0506": "A remark of the planner: at -O3 neighbouring blocks of a kernel are joined into a larger one, or operands are copied "
        "to a workspace, in rows that the copy engine reaches.",
        "TL0507": "In a kernel with barriers of its own, tile statements belong to the threads that come to them: whole warps of "
        "neighbours, or one thread. A register tile lies in the registers of the threads that use it.",
        "TL0508": "A barrier in shared memory would not do what the kernel needs: nobody arrives at it, or more threads than it counts.",
        "TL0509": "A product or a store that is only queued is not waited for where its result, or its tile, is used.",
        "TL0406": "A statement needs an instruction that the target, or a tile of this shape, does not have.",
        "TL0510": "A remark of the planner: the clusters that cluster_dims asks for do not help the product of a kernel on Hopper.",
        "TL0511": "ptxas, asked through nvcc, spills registers or puts waits between products in a body, whatever configuration is "
        "tried: the best of them is kept. Smaller tiles hold fewer registers; `tilec explain` lists what was tried.",
        "TL0512": "A remark about a body that may take more registers than there are, when nvcc was not asked or gave no answer: the "
        "planner took a configuration that its rules call safe, or the nearest to it.",
        "TL0513": "A remark of the planner: registers do not hold a tile; the elements that they have no room for lie in shared memory, "
        "where each thread has places of its own.",
        "TL0901": "A fault of tilec, not of your file. Please report it with the bundle that the message names.",
        "TL0902": "Text of the Tile IR that cannot be read; only tests of tilec meet it.",
    }
)

"""Edges of names, bodies, sequences and functions: one model each, run by test_edges.py."""

from __future__ import annotations

import numpy as np

from tests.passes.precision.edge import MINE, Edge, W, ints, normal, text

GRAPHS: dict[str, Edge] = {
    "init_shared_sub_outer": Edge(
        text(
            "c=Greater(s, z) a=MatMul(x, w) y=If(c)<then_branch=t()=>(float[2, 16] o){o=MatMul(a, "
            "w)}, else_branch=e()=>(float[2, 16] p){q=CumSum(w, i) p=MatMul(a, q)}>",
            "(float[2, 16] x, float s) => (float[2, 16] y)",
        ),
        {**W, "z": np.float32(0), "i": np.array(0)},
    ),
    "passthrough_only": Edge(text("y=Identity(x)")),
    "passthrough_direct": Edge(text("z=Relu(x)", "(float[2, 16] x) => (float[2, 16] z, float[2, 16] x)")),
    "unused_output": Edge(
        text("v, i=TopK(x, k) y=Cast<to=1>(i)", "(float[2, 16] x) => (float[2, 3] y)"), {"k": ints(3)}
    ),
    "dead_node": Edge(text("d=MatMul(x, w) e=Relu(d) y=Neg(x)"), W),
    "clash_value_names_sub": Edge(
        text(
            "c=Greater(s, z) y=If(c)<then_branch=t()=>(float[2, 16] x_fp16){x_fp16=MatMul(x, w)}, "
            "else_branch=e()=>(float[2, 16] y_fp16){y_fp16=Neg(x)}>",
            "(float[2, 16] x, float s) => (float[2, 16] y)",
        ),
        {**W, "z": np.float32(0)},
    ),
    "input_used_in_sub_only": Edge(
        text(
            "y=If(c)<then_branch=t()=>(float[2, 16] o){o=MatMul(x, w)}, "
            "else_branch=e()=>(float[2, 16] p){p=CumSum(x, i)}>",
            "(float[2, 16] x, bool c) => (float[2, 16] y)",
        ),
        {**W, "i": np.array(1)},
    ),
    "sub_output_is_captured": Edge(
        text(
            "a=MatMul(x, w) y=If(c)<then_branch=t()=>(float[2, 16] o){o=Identity(a)}, "
            "else_branch=e()=>(float[2, 16] p){p=Identity(x)}>",
            "(float[2, 16] x, bool c) => (float[2, 16] y)",
        ),
        W,
    ),
    "nested3_fp32_capture": Edge(
        text(
            "cap0=CumSum(cc, i0) cap=Mul(cap0, k) big=CumSum(x, i1_) y = Loop(n, t, "
            "x)<body=b1(int64 i1, bool c1, float[2, 16] s1)=>(bool d1, float[2, 16] r1){ "
            "d1=Identity(c1) m1=MatMul(s1, w) r1=If(q)<then_branch=tb()=>(float[2, 16] o2){ f2, "
            "g2 = Scan<num_scan_inputs=1, body=b3(float[16] a3, float[16] v3)=>(float[16] z3, "
            "float[16] u3){ k3=Mul(v3, k) h3=Add(k3, a3) z3=Tanh(h3) u3=Add(z3, cap)}>(init, m1) "
            "o2=Add(g2, big) }, else_branch=eb()=>(float[2, 16] p2){p2=Relu(m1)}> }>",
            "(float[2, 16] x, bool q) => (float[2, 16] y)",
        ),
        {
            **W,
            "k": np.float32(0.5),
            "n": np.array(2),
            "t": np.array(True),
            "init": normal(16),
            "cc": normal(16),
            "i0": np.array(0),
            "i1_": np.array(1),
        },
    ),
    "loop_int_and_float_state": Edge(
        text(
            "f, j=Loop(n, t, x, c0)<body=b(int64 i, bool c, float[2, 16] s, int64 k)=>(bool d, "
            "float[2, 16] r, int64 l){d=Identity(c) fk=Cast<to=1>(k) s1=Add(s, fk) r=MatMul(s1, "
            "w) l=Add(k, one)}> fj=Cast<to=1>(j) y=Mul(f, fj)"
        ),
        {**W, "n": np.array(3), "t": np.array(True), "c0": np.array(1), "one": np.array(1)},
    ),
    "loop_no_trip": Edge(
        text(
            "f, j=Loop(, t, x, z)<body=b(int64 i, bool c, float[2, 16] s, float acc)=>(bool d, "
            "float[2, 16] r, float a2){r=MatMul(s, w) a2=Add(acc, onef) d=Less(a2, lim)}> "
            "y=Mul(f, j)"
        ),
        {**W, "t": np.array(True), "z": np.float32(0), "onef": np.float32(1), "lim": np.float32(3)},
    ),
    "loop_state_fp32only": Edge(
        text(
            "f=Loop(n, t, x)<body=b(int64 i, bool c, float[2, 16] s)=>(bool d, float[2, 16] "
            "r){d=Identity(c) r=CumSum(s, ax)}> y=Tanh(f)"
        ),
        {"n": np.array(2), "t": np.array(True), "ax": np.array(1)},
    ),
    "scan_two_states": Edge(
        text(
            "s1, s2, o1, o2=Scan<num_scan_inputs=2, body=b(float[16] a, float[4] e, float[16] v, "
            "float[4] q)=>(float[16] a2, float[4] e2, float[16] o, float[4] p){a2=Add(a, v) "
            "e1=Mul(e, q) e2=CumSum(e1, ax) o=Tanh(a2) p=Neg(e2)}>(i1, i2, x, z) "
            "t=ReduceSum<keepdims=0>(s2) u=Add(o1, s1) y=Mul(u, t)",
            "(float[2, 16] x, float[2, 4] z) => (float[2, 16] y)",
        ),
        {"i1": normal(16), "i2": normal(4), "ax": np.array(0)},
    ),
    "loop_sequence_out": Edge(
        text(
            "e=SequenceEmpty<dtype=1>() sq=Loop(n, t, e)<body=b(int64 i, bool c, seq(float[2, "
            "16]) s)=>(bool d, seq(float[2, 16]) r){d=Identity(c) a=MatMul(x, w) "
            "r=SequenceInsert(s, a)}> y=ConcatFromSequence<axis=0>(sq)",
            "(float[2, 16] x) => (float[m, 16] y)",
        ),
        {**W, "n": np.array(2), "t": np.array(True)},
    ),
    "sequence_io": Edge(
        text(
            "a=SequenceAt(s, z) b=MatMul(a, w) q=SequenceInsert(s, b)", "(seq(float[2, 16]) s) => (seq(float[2, 16]) q)"
        ),
        {**W, "z": np.array(0)},
        feeds={"s": [normal(2, 16), normal(2, 16)]},
    ),
    "sequence_map": Edge(
        text(
            "q=SequenceConstruct(x, x) r=SequenceMap(q)<body=b(float[2, 16] a)=>(float[2, 16] "
            "o){c=MatMul(a, w) o=Relu(c)}> y=ConcatFromSequence<axis=0>(r)",
            "(float[2, 16] x) => (float[4, 16] y)",
        ),
        W,
    ),
    "sequence_at_length": Edge(
        text(
            "q=SplitToSequence<axis=0>(x) n=SequenceLength(q) a=SequenceAt(q, z) f=Cast<to=1>(n) "
            "m=MatMul(a, w) y=Mul(m, f)",
            "(float[2, 16] x) => (float[1, 16] y)",
        ),
        {**W, "z": np.array(0)},
    ),
    "sequence_erase_if": Edge(
        text(
            "q=SequenceConstruct(x, x) r=If(c)<then_branch=t()=>(seq(float[2, 16]) "
            "o){o=SequenceErase(q)}, else_branch=e()=>(seq(float[2, 16]) p){p=Identity(q)}> "
            "a=SequenceAt(r, z) y=MatMul(a, w)",
            "(float[2, 16] x, bool c) => (float[2, 16] y)",
        ),
        {**W, "z": np.array(0)},
    ),
    "optional_io": Edge(
        text(
            "h=OptionalHasElement(o) y=If(h)<then_branch=t()=>(float[2, 16] "
            "a){g=OptionalGetElement(o) a=MatMul(g, w)}, else_branch=e()=>(float[2, 16] "
            "b){b=Identity(x)}>",
            "(optional(float[2, 16]) o, float[2, 16] x) => (float[2, 16] y)",
            opset=18,
        ),
        W,
        feeds={"o": normal(2, 16), "x": normal(2, 16)},
    ),
    "range_div": Edge(
        text("r=Range(z, n, o) d=Div(r, n) y=Add(x, d)"), {"z": np.float32(0), "n": np.float32(16), "o": np.float32(1)}
    ),
    "zero_size": Edge(text("a=Concat<axis=0>(x, e) y=Relu(a)"), {"e": np.zeros((0, 16), np.float32)}),
    "fn_nested_refs": Edge(
        text(
            "a=my.Outer<alpha=0.7>(x) y=my.Outer<alpha=0.3>(a)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17, "my":1]> Outer<alpha>(p)=>(o){ '
            'a=my.Inner<k:float=@alpha>(p) o=Mul(a, a) } <domain:"my", opset_import:["":17]> '
            "Inner<k>(p)=>(o){ o=LeakyRelu<alpha:float=@k>(p) }",
        )
    ),
    "fn_types": Edge(
        text(
            "a=my.Twice(x) b=my.Twice(i) c=Cast<to=1>(b) y=Add(a, c)",
            "(float[2, 16] x, int64[2, 16] i)=>(float[2, 16] y)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17]> Twice(p)=>(o){ o=Add(p, p) }',
        )
    ),
    "fn_same_as_op": Edge(
        text(
            "a=my.Relu(x) b=Relu(a) y=MatMul(b, w)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17]> Relu(p)=>(o){ k=Constant<value_float=0.5>() o=Mul(p, k) }',
        ),
        W,
    ),
    "fn_in_sub": Edge(
        text(
            "y=If(c)<then_branch=t()=>(float[2, 16] o){o=my.F(x)}, else_branch=e()=>(float[2, 16] p){p=Neg(x)}>",
            "(float[2, 16] x, bool c)=>(float[2, 16] y)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17]> F(p)=>(o){ s=ReduceSum<keepdims=0>(p) '
            "z=Constant<value_float=0.0>() g=Greater(s, z) "
            "o=If(g)<then_branch=t2()=>(o1){o1=Neg(p)}, else_branch=e2()=>(o2){o2=Tanh(p)}> }",
        )
    ),
    "fn_unused_out_optional_in": Edge(
        text(
            "a, b=my.F(x, ) y=Relu(a)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17]> F(p, q)=>(o, u){ o=Clip(p, q) u=Neg(p) }',
        )
    ),
    "ir3_no_init_inputs": Edge(
        text("y=MatMul(x, w)", "(float[2, 16] x, float[16, 16] w)=>(float[2, 16] y)", opset=7, ir=3), W
    ),
    "optional_empty_inputs": Edge(text("a=Clip(x) b=Clip(a, , ) c=Clip(b, , m) y=Relu(c)"), {"m": np.float32(3)}),
    "identity_chain_out": Edge(
        text(
            "a=Identity(x) b=Identity(a) y=MatMul(b, w) z=Identity(y)",
            "(float[2, 16] x)=>(float[2, 16] y, float[2, 16] z)",
        ),
        W,
    ),
    "fn_two_levels_capture": Edge(
        text(
            "y=If(c)<then_branch=t()=>(float[2, 16] o){o=my.G(x, w)}, else_branch=e()=>(float[2, "
            "16] p){p=my.G(x, w2)}>",
            "(float[2, 16] x, bool c)=>(float[2, 16] y)",
            more=MINE,
            functions='<domain:"my", opset_import:["":17, "my":1]> G(p, q)=>(o){ a=MatMul(p, q) o=my.H(a) } '
            '<domain:"my", opset_import:["":17]> H(p)=>(o){ i=Constant<value=int64{1}>() '
            "o=CumSum(p, i) }",
        ),
        {**W, "w2": normal(16, 16, k=0.2)},
    ),
    "loop_nested_loop": Edge(
        text(
            "y=Loop(n, t, x)<body=b1(int64 i, bool c, float[2, 16] s)=>(bool d, float[2, 16] "
            "r){d=Identity(c) u=Loop(n, t, s)<body=b2(int64 i2, bool c2, float[2, 16] s2)=>(bool "
            "d2, float[2, 16] r2){d2=Identity(c2) f=Cast<to=1>(i) g=Cast<to=1>(i2) h=Add(f, g) "
            "m=MatMul(s2, w) r2=Add(m, h)}> v=CumSum(u, one) r=Tanh(v)}>"
        ),
        {**W, "n": np.array(2), "t": np.array(True), "one": np.array(1)},
    ),
    "scan_axes_reverse": Edge(
        text(
            "s1, o1=Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], "
            "scan_input_directions=[1], body=b(float[2] a, float[2] v)=>(float[2] a2, float[2] "
            "o){a2=Add(a, v) o=Tanh(a2)}>(i1, x) y=MatMul(o1, w)"
        ),
        {**W, "i1": normal(2)},
    ),
    "scan8_like_if_seq": Edge(
        text(
            "q=SequenceConstruct(x, x) n=SequenceLength(q) y=Loop(n, t, x)<body=b(int64 i, bool "
            "c, float[2, 16] s)=>(bool d, float[2, 16] r){d=Identity(c) e=SequenceAt(q, i) "
            "a=MatMul(e, w) r=Add(a, s)}>"
        ),
        {**W, "t": np.array(True)},
    ),
    "loop_scan_out_unused_state": Edge(
        text(
            "f, o=Loop(n, t, x)<body=b(int64 i, bool c, float[2, 16] s)=>(bool d, float[2, 16] r, "
            "float[2] k){d=Identity(c) r=Identity(s) k=ReduceMax<axes=[1], keepdims=0>(s)}> "
            "u=ReduceSum<keepdims=0>(o) y=Mul(x, u)"
        ),
        {"n": np.array(2), "t": np.array(True)},
    ),
    "if_int_and_float_outs": Edge(
        text(
            "i, y=If(c)<then_branch=t()=>(int64 a, float[2, 16] o){a=Constant<value=int64{1}>() "
            "o=MatMul(x, w)}, else_branch=e()=>(int64 b, float[2, 16] "
            "p){b=Constant<value=int64{2}>() p=CumSum(x, one)}>",
            "(float[2, 16] x, bool c)=>(int64 i, float[2, 16] y)",
        ),
        {**W, "one": np.array(1)},
    ),
    "if_branch_mixed_types": Edge(
        text(
            "y=If(c)<then_branch=t()=>(float[2, 16] o){q=CumSum(x, one) o=CumSum(q, one)}, "
            "else_branch=e()=>(float[2, 16] p){p=Neg(x)}>",
            "(float[2, 16] x, bool c)=>(float[2, 16] y)",
        ),
        {"one": np.array(1)},
    ),
    "embedding_big": Edge(
        text("e=Gather(t, i) y=MatMul(e, w)", "(int64[2] i)=>(float[2, 16] y)"), {**W, "t": normal(10, 16)}
    ),
}

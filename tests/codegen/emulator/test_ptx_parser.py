"""PTX text is read as the PTX ISA defines it: directives, scopes, labels, operands, source lines."""

from __future__ import annotations

import pytest

from stridewright.codegen.emulator import ParseError, UnsupportedInstruction, emulate_ptx, kernels_of
from stridewright.codegen.emulator.ptx import Label, Module, parse_module, parse_variable, walk
from stridewright.codegen.emulator.ptx_operands import Register
from stridewright.codegen.emulator.ptx_text import parse_number, split_commas

from .harness import HEAD


def module(body: str, head: str = "") -> Module:
    return parse_module(f"{HEAD}{head}\n.visible .entry k(.param .u64 p)\n{{\n{body}\n}}\n")


def texts(body: str) -> list[str]:
    return [str(item) for item in walk(module(body).body("k"))]


def test_instructions_keep_their_parts_and_operands() -> None:
    body = """.reg .b32 %r<5>; .reg .b64 %rd<3>; .reg .pred %p<2>, q;
    @!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1+-16];
    setp.lt.and.s32 %p0|q, %r1, -5, !%p1;
    mad.lo.s32 %r3, %r1, 0x10, %r2;
    mov.f32 %r4, 0f3F800000;"""
    assert texts(body) == [
        "@!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1+-16]",
        "setp.lt.and.s32 %p0|q, %r1, -5, !%p1",
        "mad.lo.s32 %r3, %r1, 16, %r2",
        "mov.f32 %r4, 1065353216",
    ]


def test_tensor_coordinates_and_double_colons() -> None:
    body = """.reg .b32 %r<9>; .reg .b64 %rd<3>;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4+8];"""
    instruction = next(walk(module(body).body("k")))
    assert "mbarrier::complete_tx::bytes" in instruction.parts
    assert str(instruction.operands[1]) == "[%rd1, {%r2, %r3}]"


def test_registers_of_a_nested_scope_shadow_outer_ones_and_labels_are_local() -> None:
    body = """.reg .pred p; .reg .b32 %r<3>;
    setp.eq.s32 p, %r1, 0;
    { .reg .pred p; again: setp.ne.s32 p, %r1, 0; @p bra again; }
    { .reg .pred p; again: setp.ne.s32 p, %r2, 0; @p bra again; }
    @p bra end;
    end: ret;"""
    found = module(body).body("k")
    instructions = list(walk(found))
    slots = [
        item.operands[0].slot
        for item in instructions
        if item.parts[0] == "setp" and isinstance(item.operands[0], Register)
    ]
    assert len(set(slots)) == 3
    guards = [item.guard.slot for item in instructions if item.guard is not None]
    assert guards == [slots[1], slots[2], slots[0]]
    labels = [item.number for item in found.statements if isinstance(item, Label)]
    assert [item.targets for item in instructions if item.parts[0] == "bra"] == [
        (labels[0],),
        (labels[1],),
        (labels[2],),
    ]


def test_source_lines_with_what_was_inlined() -> None:
    head = '.file 1 "src/kernel.cu"\n.file 2 "src/ptx.cuh"'
    body = """.reg .b32 %r<3>;
    .loc 1 40 5
    add.s32 %r1, %r1, 1;
    .loc 1 12 3, function_name $L__info_string0, inlined_at 1 40 5
    add.s32 %r1, %r1, 2;
    .loc 2 7 9, function_name $L__info_string1, inlined_at 1 12 3
    add.s32 %r1, %r1, 3;"""
    parsed = module(body, head)
    places = [parsed.place(item) for item in walk(parsed.body("k"))]
    assert [(place.file, place.line) for place in places] == [
        ("src/kernel.cu", 40),
        ("src/kernel.cu", 12),
        ("src/ptx.cuh", 7),
    ]
    assert places[2].inlined_at == (("src/kernel.cu", 12), ("src/kernel.cu", 40))
    lines = parsed.text.splitlines()
    assert all(f"%r1, {n + 1};" in lines[place.ptx_line - 1] for n, place in enumerate(places))


def test_comments_and_debug_sections_are_skipped() -> None:
    text = f"""{HEAD}
    // .visible .entry no()
    .visible .entry k() {{ /* mov.u32
    */ ret; }}
    .file 1 "a//b.cu"
    .section .debug_str {{
    $L__info_string0:
    .b8 95,90,51
    .b8 0
    }}
    """
    parsed = parse_module(text)
    assert kernels_of(text) == ("k",)
    assert parsed.files == {1: "a//b.cu"}


def test_heads_of_functions() -> None:
    text = f"""{HEAD}
    .func (.param .b32 out) f(.param .b32 a, .param .align 8 .b8 b[16]);
    .visible .entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .global .align 16 p, .param .u32 n)
    .maxntid 384, 1, 1
    .minnctapersm 1
    .reqnctapercluster 2, 1, 1
    {{ ret; }}"""
    function = parse_module(text).functions["k"]
    assert [(p.name, p.size, p.align) for p in function.parameters] == [("map", 128, 64), ("p", 8, 8), ("n", 4, 4)]
    assert function.directives == {"maxntid": (384, 1, 1), "minnctapersm": (1,), "reqnctapercluster": (2, 1, 1)}


def test_variables_of_the_module() -> None:
    head = ".extern .shared .align 1024 .b8 dynamic[];\n.const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n.global .u32 counter;"
    variables = module("ret;", head).variables
    assert (variables["dynamic"].size, variables["dynamic"].align) == (None, 1024)
    assert (variables["table"].size, variables["counter"].size) == (8, 4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-12", -12),
        ("0x1F", 31),
        ("0b101", 5),
        ("017", 15),
        ("0f40000000", 0x40000000),
        ("0d4000000000000000", 1 << 62),
        ("42U", 42),
        ("1.5", 1.5),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert parse_number(text) == value


def test_lists_are_split_outside_brackets() -> None:
    assert [piece.strip() for piece in split_commas("{a, b}, [c, {d, e}], f")] == ["{a, b}", "[c, {d, e}]", "f"]


def test_a_declaration_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ParseError, match="texref"):
        parse_variable("global", " .texref t")
    with pytest.raises(ParseError, match="PTX line 8"):
        module(".reg .b32 %r<2>;\nmov.u32 %r1, %q9;\n???").body("k")
    with pytest.raises(ParseError, match="not defined"):
        module("bra nowhere;").body("k")
    with pytest.raises(ParseError, match="no function 'other'"):
        module("ret;").body("other")


def test_what_cannot_be_reached_need_not_be_known() -> None:
    text = f"{HEAD}.visible .entry k() {{ bra over; wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{%r1}}, [%r2]; over: ret; }}"
    with pytest.raises(ParseError, match=r"operand '\?\?\?'"):
        parse_module(text.replace("%r1", "???")).body("k")
    text = text.replace("{%r1}, [%r2]", "")
    emulate_ptx(text, "k", 1, 32, [])
    with pytest.raises(UnsupportedInstruction, match=r"wmma.load(.|\n)*PTX line 4"):
        emulate_ptx(text.replace("bra over;", ""), "k", 1, 32, [])

"""Texts for the workloads of a chat model: passages to go on from or to summarise, and code to edit."""

from __future__ import annotations

from specverify.sweep.families import EDIT

_PASSAGES = (
    """The lighthouse at the end of the pier had not been lit for thirty years when Marta bought it. The town council
was glad to be rid of the repairs, and she was glad of the quiet. In the first winter she learned which of the
windows let in the rain and which of the stairs complained at night. In the second winter the old keeper's
daughter came to see her, with a box of logbooks under her arm. Every evening for forty years somebody had
written down the wind, the ships and the birds. Marta read them in order, one year each week, and by spring she
knew that the light had failed only once, on a night when no ship had been expected and one had come.""",
    """Bread rises because yeast eats sugar and gives off carbon dioxide. The gas is caught in a web of gluten, which
forms when flour and water are mixed and stretched when the dough is kneaded. Warm dough rises quickly and
tastes of little; cold dough rises slowly and tastes of more, because acids and alcohols have time to form. Salt
slows the yeast and tightens the web. When the loaf goes into the oven the gas expands, the water turns to
steam, and for about ten minutes the loaf grows. Then the starch sets, the crust dries and browns, and the shape
is fixed. A loaf is done when its middle is above ninety-five degrees, and it should cool before it is cut,
because the crumb is still setting.""",
    """The city wants to replace the bridge over the canal, which was built in 1931 and carries twice the traffic that
it was built for. Two plans are on the table. The first keeps the old arches and puts a new deck on top of them;
it costs eleven million and closes the road for fourteen months. The second puts a steel bridge beside the old
one, costs nineteen million and closes the road for three weekends. Shop owners on both banks prefer the second
plan, because they remember the last closure. The heritage board prefers the first, because the arches are the
last of their kind. The council votes in May, and the engineers have said that the old deck will not carry
lorries after next winter.""",
)

_CODE = (
    """def total_price(items, tax):
    total = 0
    for item in items:
        total = total + item.price * item.count
    if tax:
        total = total + total * tax
    return total
""",
    """class Counter:
    def __init__(self):
        self.counts = {}

    def add(self, word):
        if word in self.counts:
            self.counts[word] += 1
        else:
            self.counts[word] = 1

    def most_common(self):
        return sorted(self.counts, key=self.counts.get, reverse=True)
""",
    """def read_table(path):
    rows = []
    with open(path) as file:
        for line in file:
            line = line.strip()
            if line:
                rows.append(line.split(","))
    return rows
""",
)
_EDITS = ("Rename total to amount", "Rename counts to numbers", "Rename rows to table")


def passages() -> list[str]:
    """Three passages of about 150 words each."""
    return [passage.replace("\n", " ") for passage in _PASSAGES]


def chat(workload: str) -> list[str]:
    """Prompts in ChatML, up to where the answer begins."""
    if workload == EDIT:
        asked = [f"{edit} in this code and write the whole code again.\n\n{code}"
                 for edit, code in zip(_EDITS, _CODE, strict=True)]  # fmt: skip
    else:
        asked = [f"Summarise this document in a few sentences, in its own words.\n\n{text}" for text in passages()]
    return [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in asked]

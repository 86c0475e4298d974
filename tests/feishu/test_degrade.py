"""Markdown becomes plain text wherever it stands; all else stays."""

from amux.feishu.degrade import without_markup


def test_markdown_becomes_plain_text_and_the_rest_stays() -> None:
    button = {"tag": "button", "text": {"tag": "plain_text", "content": "Stop"}, "behaviors": [{"type": "callback"}]}
    both = {"en_us": "a &lt; b", "zh_cn": "小于 &lt;"}
    panel = {"tag": "collapsible_panel", "elements": [{"tag": "markdown", "element_id": "m", "content": "*x*"}]}
    markdown = {"tag": "markdown", "content": "a &lt; b", "i18n_content": both, "text_size": "notation"}
    card = {
        "schema": "2.0",
        "header": {"title": {"tag": "plain_text"}},
        "body": {"elements": [markdown, panel, button]},
    }
    plain = {"tag": "plain_text", "content": "a < b", "i18n_content": {"en_us": "a < b", "zh_cn": "小于 <"}}
    inner = {"tag": "div", "text": {"tag": "plain_text", "content": "*x*"}, "element_id": "m"}
    assert without_markup(card) == {
        "schema": "2.0",
        "header": {"title": {"tag": "plain_text"}},
        "body": {
            "elements": [{"tag": "div", "text": plain}, {"tag": "collapsible_panel", "elements": [inner]}, button]
        },
    }

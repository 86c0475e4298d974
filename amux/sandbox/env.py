"""The environment of an amux that lives in the sandbox."""

from amux.sandbox import feishu
from amux.sandbox.records import open_id


def sandbox_env(engine: str, base: str, seconds: float) -> dict[str, str]:
    """What makes an amux live in the sandbox: its bot, its model, its pace."""
    return {
        "AMUX_ENGINE": engine,
        "AMUX_SCRIPTED_SECONDS": f"{seconds:g}",
        "AMUX_FEISHU_APP_ID": feishu.CODER,
        "AMUX_FEISHU_APP_SECRET": feishu.CODER_SECRET,
        "AMUX_FEISHU_DOMAIN": base,
        "AMUX_FEISHU_OWNER": open_id(feishu.CODER, feishu.USER_A),
        "AMUX_FEISHU_DRIVERS": open_id(feishu.CODER, feishu.USER_B),
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_KEY": "sandbox",
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": "sandbox",
        "NO_PROXY": "127.0.0.1,localhost",
    }

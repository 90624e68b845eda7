"""Write the generated reference again: `python -m tools.reference`."""

from tools.documents import DOCS
from tools.reference.pages import stale, written

if __name__ == "__main__":
    for each in stale():
        each.unlink()
        print(f"removed {each.relative_to(DOCS.parent)}")
    for page, text in written():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
            print(f"wrote {page.relative_to(DOCS.parent)}")

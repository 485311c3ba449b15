"""The playground in a real Chromium: drag, type, step, reload; the numbers on the page are those of the package."""

import importlib.util
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import softmaxdyn as sd
from softmaxdyn.policy import softmax

ROOT = Path(__file__).parents[1]
URL = (ROOT / "softmaxdyn" / "playground" / "index.html").as_uri()
SPEC = importlib.util.spec_from_file_location("browser", ROOT / "experiments" / "playground" / "browser.py")
browsing = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(browsing)
CHROMIUM = browsing.find()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian: apt-get install chromium)")
START = np.array([-2.9957, -4.6052, -0.0619])
REWARDS = np.array([1.0, 0.9, 0.1])
VALUES = "[...document.querySelectorAll('{0}')].map(e => Number(e.dataset.value))"
NAMES = [
    "entropy",
    "expectedReturn",
    "change",
    "lemma1",
    "theorem1",
    "theorem2",
    "remainder",
    "bound",
    "kl",
    "certified",
]
BOX = "document.querySelector('#simplex')"


@pytest.fixture(scope="module")
def chromium():
    with browsing.Browser(CHROMIUM) as browser:
        yield browser


@pytest.fixture
def page(chromium):
    """The page at its defaults on a desktop; a test fails when the console holds an error after it."""
    chromium.complaints.clear()
    chromium.window(browsing.DESKTOP)
    chromium.open(URL)
    yield chromium
    assert chromium.complaints == []


@jax.jit
def package(z, r, eta):
    """What the package says of one PG step, in the order of NAMES."""
    delta = sd.proposition_1(z, r, eta)
    advantage = r - jnp.sum(sd.probs(z) * r)
    return [
        *(sd.entropy(z), jnp.sum(sd.probs(z) * r), sd.entropy_change(z, delta), sd.lemma_1(z, delta)),
        *(
            sd.theorem_1(z, advantage, eta),
            sd.theorem_2(z, r, eta),
            sd.remainder(z, delta),
            sd.remainder_bound(z, delta),
        ),
        *(sd.change.decompose(softmax(z), delta).kl, sd.certified_step_size(z, delta)),
    ]


def numbers(page):
    """The quantities that the page shows, all digits, by name."""
    rows = page.evaluate(
        "[...document.querySelectorAll('#numbers td')].map(e => [e.dataset.name, Number(e.dataset.value)])"
    )
    return dict(rows)


def column(page, name):
    return np.array(page.evaluate(VALUES.format(f"#arms [data-name={name}]")))


def probabilities(page):
    return np.array(page.evaluate(VALUES.format("#arms input[data-value]")))


def agrees(page, rewards=REWARDS, eta=0.4):
    """Checks what the page shows of the policy on it against the package; these policies are well-conditioned."""
    shown, z = numbers(page), column(page, "logit")
    np.testing.assert_allclose(column(page, "after"), sd.probs(z + sd.proposition_1(z, rewards, eta)), rtol=1e-12)
    wanted = dict(zip(NAMES, map(float, package(z, rewards, eta)), strict=True))
    np.testing.assert_allclose([shown[name] for name in NAMES], list(wanted.values()), rtol=1e-12, atol=1e-17)


def text(page, selector):
    return page.evaluate(f"document.querySelector({selector!r}).textContent")


def saved(page):
    """The link once the page has written it."""
    page.evaluate("new Promise(done => setTimeout(done, 350))")
    return page.evaluate("location.href")


def corner(page, arm):
    """Where a corner of the triangle is in the window."""
    page.evaluate(f"{BOX}.scrollIntoView({{block: 'center'}})")
    x, y, width, _ = page.box("#simplex")
    side = width - 56
    across, down = [(side / 2, 0.0), (0.0, side * 3**0.5 / 2), (side, side * 3**0.5 / 2)][arm]
    return x + 28 + across, y + 26 + down


def between(page, weights):
    """The place in the window of the policy with these probabilities."""
    return tuple(np.array(weights) @ np.array([corner(page, arm) for arm in range(3)]))


def test_the_first_numbers_are_those_of_the_package(page):
    np.testing.assert_array_equal(column(page, "logit"), START)
    agrees(page)


def test_the_point_goes_where_it_is_dragged(page):
    target = np.array([0.2, 0.5, 0.3])
    page.drag([between(page, p) for p in ([0.05, 0.01, 0.94], [0.4, 0.3, 0.3], target)])
    np.testing.assert_allclose(probabilities(page), target, atol=0.01)  # a pixel is 1/400 of the side
    agrees(page)
    page.drag([between(page, target), (0.0, 0.0)])  # far outside: it stays inside the triangle
    assert probabilities(page).min() > 0.5e-4
    agrees(page)


def test_a_bar_is_dragged_and_the_other_arms_keep_their_proportions(page):
    before = probabilities(page)
    x, y, width, height = page.box("#arms .bar")
    page.evaluate("document.querySelector('#arms .bar').scrollIntoView({block: 'center'})")
    x, y, width, height = page.box("#arms .bar")
    page.drag([(x + 0.1 * width, y + height / 2), (x + 0.6 * width, y + height / 2)])
    after = probabilities(page)
    assert after[0] == pytest.approx(0.6, abs=0.01)
    assert after[1] / after[2] == pytest.approx(before[1] / before[2], rel=2e-4)  # logits have four decimals
    agrees(page)


def test_the_arrow_keys_move_the_point_and_the_bars(page):
    page.evaluate(f"{BOX}.focus()")
    page.press("Home")
    page.settle()
    np.testing.assert_allclose(probabilities(page), 1 / 3, rtol=1e-4)
    page.press("ArrowUp")
    page.press("ArrowRight", shift=True)
    page.settle()
    np.testing.assert_allclose(probabilities(page), [0.34333, 0.27833, 0.37833], rtol=1e-3)
    page.evaluate("document.querySelector('#arms .bar').focus()")
    page.press("ArrowLeft")
    page.settle()
    assert probabilities(page)[0] == pytest.approx(0.33333, rel=1e-3)
    agrees(page)
    for key, least, most in (("End", 0.999, 1.0), ("Home", 0.0, 1e-5)):
        page.press(key)
        page.settle()
        assert least < probabilities(page)[0] < most


def test_what_is_typed_counts(page):
    page.type("#arms tr:nth-child(2) td:nth-of-type(2) input", "0.25")
    assert probabilities(page)[1] == pytest.approx(0.25, rel=1e-5)
    page.type("#arms tr:nth-child(3) td:nth-of-type(3) input", "−2")
    page.type("#stepSize", "1.5")
    agrees(page, np.array([1.0, 0.9, -2.0]), 1.5)


@pytest.mark.parametrize("nonsense", ["", "NaN", "1e999", "abc", "-1", "0x10"])
def test_nonsense_in_a_field_is_marked_and_changes_nothing(page, nonsense):
    before = numbers(page)
    page.type("#stepSize", nonsense)
    assert page.evaluate("document.querySelector('#stepSize').getAttribute('aria-invalid')") == "true"
    assert text(page, "#complaint") == "wanted a number from 0 to 1000000"
    assert numbers(page) == before
    page.evaluate("document.activeElement.blur()")
    page.settle()
    assert page.evaluate("document.querySelector('#stepSize').value") == "0.4"
    assert page.evaluate("document.querySelector('#complaint').hidden")


def test_steps_follow_proposition_1_and_the_link_brings_them_back(page):
    z = START
    for _ in range(3):
        z = z + sd.proposition_1(z, REWARDS, 0.4)
        page.click("#step")
    shown = numbers(page)
    np.testing.assert_allclose(column(page, "logit"), z, rtol=1e-14)
    agrees(page)
    link = saved(page)
    assert "at=3" in link
    page.open(link)
    assert numbers(page) == shown
    page.click("#reset")
    np.testing.assert_array_equal(column(page, "logit"), START)


def test_play_goes_on_until_paused(page):
    page.click("#play")
    page.wait("Number(/\\d+/.exec(document.querySelector('#numbers-caption').textContent)[0]) >= 5")
    page.click("#play")
    caption = text(page, "#numbers-caption")
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert text(page, "#numbers-caption") == caption
    assert text(page, "#play") == "Play"


def test_a_step_is_gone_to_and_stays_while_the_method_changes(page):
    page.type("#at", "7")
    page.wait('document.body.dataset.ready === "true"')
    assert text(page, "#numbers-caption").startswith("Step 7")
    page.type("#stepSize", "0.2")
    page.choose("#method", "npg")
    page.wait('document.body.dataset.ready === "true"')
    np.testing.assert_allclose(probabilities(page), sd.probs(START + 7 * 0.2 * REWARDS), rtol=1e-12)
    page.type("#at", "2")
    assert text(page, "#numbers-caption").startswith("Step 2")
    page.click("#step")
    assert page.evaluate("document.querySelector('#at').value") == "3"
    page.type("#at", "10000")
    page.wait('document.body.dataset.ready === "true"')
    assert page.evaluate("document.querySelector('#step').disabled")


def test_an_example_stays_named_until_something_changes(page):
    page.choose("#example", "rise")
    saved(page)
    assert page.evaluate("document.querySelector('#example').value") == "rise"
    page.type("#stepSize", "0.25")
    saved(page)
    assert page.evaluate("document.querySelector('#example').value") == ""


def test_the_policy_now_can_become_the_start(page):
    page.click("#step")
    prob = probabilities(page)
    page.click("#here")
    np.testing.assert_allclose(probabilities(page), prob, rtol=1e-14)
    assert text(page, "#numbers-caption").startswith("Step 0")


def test_the_buttons_copy_the_link_and_the_program(page):
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async t => { window.kept = t; }}})"
    )
    page.click("#copy-python")
    program = page.evaluate("window.kept")
    assert "sd.VanillaPG(0.4)" in program
    assert program == page.evaluate("State.python(State.parse(location.hash).state)")
    page.click("#copy-link")
    assert page.evaluate("window.kept === location.href")
    assert text(page, "#notice") == "Copied."


def test_every_method_and_every_number_of_arms_draws(page):
    for method in page.evaluate("State.CHOICES.method"):
        page.choose("#method", method)
        if page.evaluate("!document.querySelector('#mode').parentElement.hidden"):
            page.choose("#mode", "sampled")
            page.click("#step")
        assert np.isfinite(list(numbers(page).values())[:9]).all()
    for count in range(2, 9):
        page.choose("#count", str(count))
        assert page.evaluate("document.querySelectorAll('#arms tbody tr').length") == count
        assert page.evaluate(f"{BOX}.hidden") == (count != 3)
        assert probabilities(page).sum() == pytest.approx(1.0, rel=1e-12)


def test_every_example_opens(page):
    for name in page.evaluate("[...document.querySelector('#example').options].map(o => o.value).filter(Boolean)"):
        page.choose("#example", name)
        page.wait('document.body.dataset.ready === "true"')
        assert page.evaluate("document.querySelector('#notice').hidden")


@pytest.mark.parametrize(
    "fragment", ["#z=NaN&eta=1e999&x", "#z=-700,700,0&r=1e6,-1e6,0&eta=1e6&at=50&method=npg", "#%%%&=&z"]
)
def test_nonsense_in_the_link_is_survived(page, fragment):
    page.open(URL + fragment)
    assert np.isfinite([numbers(page)[name] for name in NAMES[:9]]).all()
    assert page.evaluate("document.querySelector('#notice').hidden") == ("700" in fragment)


def test_a_link_pasted_into_the_same_page_is_opened(page):
    page.evaluate("location.hash = '#z=0,0,0,0&r=1,0,0,0'")
    page.wait("document.querySelectorAll('#arms tbody tr').length === 4")
    page.settle()
    np.testing.assert_array_equal(column(page, "logit"), np.zeros(4))
    assert "z=0,0,0,0" in saved(page)


def test_a_phone_shows_the_main_numbers_under_the_buttons(page):
    page.window(browsing.PHONE)
    page.settle()
    assert page.box("#brief")[1] < page.box("#simplex-tools")[1]
    assert re.fullmatch(r"H = 0\.2\d+, next step: ΔH = 0\.00\d+, Lemma 1 0\.00\d+", text(page, "#brief"))
    page.window(browsing.DESKTOP)
    assert page.box("#brief")[3] == 0


def test_language_and_colours_change_and_stay_in_the_link(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    assert (page.evaluate("document.documentElement.lang"), page.evaluate(ground)) == ("en", "rgb(255, 255, 255)")
    page.choose("#lang", "zh")
    page.choose("#theme", "dark")
    page.open(saved(page))
    assert (page.evaluate("document.documentElement.lang"), page.evaluate("document.title")) == (
        "zh-Hans",
        "熵的演练场",
    )
    assert page.evaluate(ground) == "rgb(18, 20, 23)"
    assert re.search("[a-z]{6}", text(page, "main")) is None
    page.open(URL)
    page.window(browsing.DESKTOP, dark=True)
    assert page.evaluate(ground) == "rgb(18, 20, 23)"


@pytest.mark.parametrize(
    "size", [(320, 640), browsing.PHONE, (768, 1024), browsing.DESKTOP], ids=lambda size: str(size[0])
)
def test_nothing_sticks_out_of_the_window(page, size):
    page.window(size)
    for fragment in ("#lang=en", "#lang=zh&method=clip_cov&mode=sampled", "#z=0,1,2,3,4,5,6,7"):
        page.open(URL + fragment)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert page.evaluate("document.querySelector('#path').getBoundingClientRect().right") <= size[0]


def test_the_triangle_follows_the_size_of_the_window(page):
    before = page.box("#simplex")[2]
    page.window(browsing.PHONE, density=2.0)
    page.settle()
    x, _, width, height = page.box("#simplex")
    assert x >= 0
    assert width < before
    assert page.evaluate(f"{BOX}.width") == 2 * round(width)
    assert height == pytest.approx((width - 56) * 3**0.5 / 2 + 52, abs=1.0)
    page.drag([between(page, [0.5, 0.25, 0.25])])
    np.testing.assert_allclose(probabilities(page), [0.5, 0.25, 0.25], atol=0.01)


@pytest.mark.parametrize("fragment", ["#lang=en", "#lang=zh&method=reference_kl&mode=sampled", "#z=0,0,0,0"])
def test_whatever_takes_the_focus_has_a_name(page, fragment):
    page.open(URL + fragment)
    page.send("Accessibility.enable")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    page.send("Accessibility.disable")
    focusable = [
        n for n in nodes if any(p["name"] == "focusable" and p["value"]["value"] for p in n.get("properties", []))
    ]
    named = {n["role"]["value"]: n["name"]["value"] for n in focusable if n["name"]["value"].strip()}
    assert [n["role"]["value"] for n in focusable if not n["name"]["value"].strip()] == []
    assert {"button", "textbox", "combobox", "slider", "checkbox"} <= named.keys()


def test_the_tab_key_reaches_every_control_and_shows_where_it_is(page):
    page.evaluate("document.activeElement.blur()")
    seen = []
    for _ in range(60):
        page.press("Tab")
        at, style, wide = page.evaluate(
            "(e => [e.id || e.tagName, ...['outlineStyle', 'outlineWidth'].map(name => getComputedStyle(e)[name])])"
            "(document.activeElement)"
        )
        if at in ("BODY", "HTML") or (seen and at == seen[0]):
            break
        assert (style, wide) == ("solid", "3px"), at
        seen.append(at)
    wanted = page.evaluate(
        "[...document.querySelectorAll('button, select, input, canvas[tabindex]')]"
        ".filter(e => e.id && e.checkVisibility()).map(e => e.id)"
    )
    assert [name for name in wanted if name not in seen] == []


def test_the_main_numbers_are_said_once_they_stand(page):
    page.click("#uniform")
    page.wait("/33.3 %, 33.3 %, 33.3 %/.test(document.querySelector('#said').textContent)")
    assert "Entropy 1.0986." in text(page, "#said")
    assert page.evaluate("document.querySelector('#said').getAttribute('aria-live')") == "polite"


def test_the_table_of_steps_holds_what_the_plots_show(page):
    page.open(URL + "#at=3")
    page.evaluate("document.querySelector('#steps').open = true")
    page.wait("document.querySelectorAll('#steps tbody tr').length === 4")
    last = page.evaluate("[...document.querySelectorAll('#steps tbody tr:last-child td')].map(e => e.textContent)")
    assert float(last[1].replace("−", "-")) == pytest.approx(numbers(page)["entropy"], rel=1e-4)

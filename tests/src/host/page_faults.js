// Evaluated in a page; see FAULTS in report.rs.
(() => {
  const faults = [], wide = document.documentElement.clientWidth;
  const say = (figure, what) => faults.push(figure.id + ': ' + what);
  if (document.documentElement.scrollWidth > wide) faults.push('the page is wider than its window');
  const figures = [...document.querySelectorAll('figure')];
  for (const figure of figures) {
    for (const panel of figure.querySelectorAll('.panel')) {
      const seen = [...panel.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
      if (seen.length !== 1) { say(figure, seen.length + ' plots of a panel are seen'); continue; }
      const box = seen[0].getBoundingClientRect();
      if (box.width < 200 || box.height < 50) say(figure, 'a plot is tiny');
      if (box.left < 0 || box.right > wide + 0.5) say(figure, 'a plot leaves the window');
      if (seen[0].querySelectorAll('.mark').length === 0) say(figure, 'a plot is empty');
      const texts = [...seen[0].querySelectorAll('text')].map(text => [text, text.getBoundingClientRect()]);
      texts.forEach(([text, at], ix) => {
        if (at.height < 8) say(figure, 'too small to read: ' + text.textContent);
        if (at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1)
          say(figure, 'cut off: ' + text.textContent);
        for (const [other, otherAt] of texts.slice(ix + 1)) {
          const across = Math.min(at.right, otherAt.right) - Math.max(at.left, otherAt.left);
          const down = Math.min(at.bottom, otherAt.bottom) - Math.max(at.top, otherAt.top);
          if (across > 1 && down > 3) say(figure, 'overlap: ' + text.textContent + ' and ' + other.textContent);
        }
      });
    }
  }
  return {faults, figures: figures.length};
})()
